// Moves on their way from a loop to the thread of a GPU, and how they ended. One queue per loop and
// GPU: the loop alone pushes and looks, the GPU's thread alone takes and marks.
//
// How far a stream has come is a word per queue and stream in pinned memory: the GPU writes a
// move's mark behind the move, in stream order. So the loop sees the end of a move without a call,
// and without the GPU's thread.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ranges.h"
#include "memory/mover.h"

namespace tcpx::gpu {

// Copies and kernels in streams of their own, so that a kernel that does not start, because the
// user's hold all of the GPU, keeps no copy waiting; and the ways apart, because PCIe has both.
enum class Lane : uint8_t { kCopyOut, kCopyIn, kKernelOut, kKernelIn };
inline constexpr size_t kLanes = 4;

struct MoveJob {
  enum class State : uint32_t { kFree, kQueued, kUnderWay, kRefused };

  // The loop's, until it is pushed.
  bool out = false;  // of the GPU's memory, into the slot
  std::vector<iovec> memory;
  uint8_t* slot = nullptr;
  uint64_t bytes = 0;
  Nanos pushed = 0;

  // The GPU's thread's, until `state` says otherwise.
  Lane lane{};
  uint32_t mark = 0;
  uint32_t copies = 0, kernels = 0;
  bool lacked_kernel = false;
  Nanos submitted = 0;
  ProfiledRange range;  // from here on until the loop sees that it is over
  bool failed = false;  // what was under way of it comes to its end first
  std::string why;      // empty also where there was no memory for it
  std::atomic<State> state{State::kFree};
};

// In pinned memory, a cache line for each queue.
struct alignas(64) Marks {
  std::array<uint32_t, kLanes> reached;
};

class MoveQueue {
 public:
  // More than slots of both uses: a job has a slot while it lasts.
  static constexpr uint32_t kJobs = 128;

  // `number`: of the loop, among those that share the GPU.
  MoveQueue(Marks* marks, MoveWatcher& watcher, uint32_t number)
      : marks_(marks), watcher_(watcher), number_(number) {
    free_.reserve(kJobs);
    for (uint32_t i = kJobs; i > 0; --i) free_.push_back(i - 1);
  }

  // ---- the loop ----
  uint32_t push(bool out, std::span<const iovec> memory, uint8_t* slot, Nanos now);
  // `lost`: the GPU does nothing any more.
  MoveState look(uint32_t job, bool lost, MoveEnd* end);
  bool has_jobs() const { return free_.size() < kJobs; }
  // Nobody will look any more. What is under way goes on; what was not begun is not begun.
  // When it returns the watcher is not told anything any more.
  void close() noexcept;

  uint32_t number() const { return number_; }

  // ---- the GPU's thread ----
  MoveJob* next();  // the oldest one; nullptr: none
  void taken() { ++taken_; }
  void begun(Nanos now) { last_begun_ = now; }
  Nanos last_begun() const { return last_begun_; }
  uint32_t next_mark(Lane lane) { return ++last_[index(lane)]; }
  uint32_t* word(Lane lane) const { return &marks_->reached[index(lane)]; }
  bool under_way(Lane lane) const { return reached(lane) != last_[index(lane)]; }
  uint32_t reached(Lane lane) const {
    return std::atomic_ref<uint32_t>(marks_->reached[index(lane)]).load(std::memory_order_acquire);
  }
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  bool under_way() const;
  // Whether somebody has to be told what ends here.
  bool unwatched() noexcept;
  // It will not be begun.
  void refuse(MoveJob& job, const std::string& why);
  // Something is over that the loop has neither looked at nor been told of. `lost`: all is.
  bool has_news(bool lost) const {
    return over(lost) - looked_at_.load(std::memory_order_relaxed) != 0 && over(lost) != told_;
  }
  void tell(bool lost) noexcept;

 private:
  static size_t index(Lane lane) { return static_cast<size_t>(lane); }
  uint32_t over(bool lost) const;
  template <class F>
  void with_watcher(F&& f) noexcept;

  Marks* const marks_;
  MoveWatcher& watcher_;
  const uint32_t number_;
  std::array<MoveJob, kJobs> jobs_;
  std::array<std::atomic<uint32_t>, kJobs> ring_{};
  std::vector<uint32_t> free_;           // the loop's
  std::atomic<uint32_t> pushed_{0};      // by the loop
  alignas(64) uint32_t taken_ = 0;       // by the GPU's thread
  std::array<uint32_t, kLanes> last_{};  // marks given
  Nanos last_begun_ = 0;
  uint32_t refused_ = 0;
  uint32_t told_ = 0;                   // how many were over
  std::atomic<uint32_t> looked_at_{0};  // by the loop, when they were over
  std::atomic<bool> closed_{false}, at_watcher_{false};
};

}  // namespace tcpx::gpu
