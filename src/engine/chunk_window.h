// Our chunks that a lane carries, from handed over to settled: at most a window of them, and no
// more than the lane can move in a while at the rate it has shown.
//
// A GPU may stand still, and what touches it stays where it is. So its chunks have a share: it gets
// another place only while it holds fewer than are left for GPUs, and one place is never a GPU's.
// One that hangs has half of the window, the next half of the rest, and host memory goes on.
//
// Pure, but for `rate`, which anybody may read. In the exclusive section of the lane's loop.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/steps.h"
#include "engine/transfer.h"

namespace tcpx {

struct RxChunk;
struct TxFrame;

struct ChunkOutRules {
  enum class State : uint8_t {
    kFree,
    kFilling,   // its bytes are being moved out of memory that lanes cannot read
    kQueued,    // with the lane, not all out yet
    kAnswered,  // beside the stream it was there before our end of the path knew that it is out
    kOut,       // its answer is due
    kArriving,  // READ: its data is coming
    kPlacing    // READ: its data is being moved into memory that lanes cannot write
  };
  static constexpr const char* kWhat = "a chunk on its way out";
  using enum State;
  static constexpr std::array kStates = {
      Step{kFree, "free", {kFilling, kQueued}},
      Step{kFilling, "filling", {kQueued, kFree}},
      Step{kQueued, "queued", {kAnswered, kOut, kFree}},
      Step{kAnswered, "answered", {kFree}},
      Step{kOut, "out", {kArriving, kFree}},
      Step{kArriving, "arriving", {kOut, kPlacing, kFree}},
      Step{kPlacing, "placing", {kFree}},
  };
};

// A chunk of ours that a lane carries.
struct ChunkOut {
  using State = ChunkOutRules::State;
  Stepped<ChunkOutRules> state;
  std::shared_ptr<TransferState> transfer;  // null: a READ that was given up
  uint64_t transfer_id = 0;
  uint32_t chunk = 0;
  uint64_t bytes = 0;
  Nanos since = 0;
  TxFrame* frame = nullptr;    // until it is out
  RxChunk* landing = nullptr;  // READ: its data is arriving or being moved into place
  uint64_t copied = 0;
  bool is_read = false;
  bool lacks_slot = false;  // it waits for one
  GpusTouched gpus{};
  tcpx_code answer = TCPX_OK;  // of kAnswered

  bool used() const { return !(state == State::kFree); }
};

class ChunkWindow {
 public:
  enum class Pace {
    kAdaptive,  // by the rate that the lane has shown
    kWhole,     // the whole window
    kOneByOne   // the next when the last one is answered
  };
  ChunkWindow(uint32_t size, Pace pace, uint64_t chunk_bytes)
      : entries_(size), pace_(pace), chunk_bytes_(chunk_bytes) {}

  size_t size() const { return entries_.size(); }
  uint32_t used() const { return used_; }
  double rate() const { return rate_.load(std::memory_order_relaxed); }  // bytes/ns; 0: unknown
  // Whether there is a place at all.
  bool has_place() const {
    return used_ < entries_.size() && (pace_ != Pace::kOneByOne || used_ == 0);
  }
  // And for what it is not, if there is. But for `slots`, of which it knows nothing.
  NoMoreOf no_more() const;
  bool may_hold_more() const { return has_place() && !no_more().host; }  // of host memory
  // For this chunk; there is room, as these have said.
  ChunkOut& take(ChunkWork&& work, uint64_t bytes, bool is_read, ChunkOut::State state, Nanos now);
  ChunkOut* find(uint64_t transfer_id, uint32_t chunk);
  // It is settled, and its place free. What it was.
  ChunkWork settle(ChunkOut& entry, bool well, Nanos now);
  // The lane has ended: all that had no answer.
  template <class F>
  void give_up_all(F&& f) {
    for (ChunkOut& entry : entries_) {
      if (entry.used()) f(entry);
      entry = {};
    }
    used_ = of_gpus_ = 0;
    host_ = {};
    for (GpusHeld& end : gpus_) end = {};
  }
  template <class F>
  void each(F&& f) {
    for (ChunkOut& entry : entries_)
      if (entry.used()) f(entry);
  }
  const ChunkOut* oldest() const;

 private:
  struct Held {
    uint32_t chunks = 0;
    uint64_t bytes = 0;
  };
  // By GPU of one end; `some`: of which there are any.
  struct GpusHeld {
    PlaceMask some = 0;
    std::array<Held, kMostDevices> of{};
  };
  void learn_rate(uint64_t bytes, Nanos now);
  bool holds_enough(const Held& held) const;
  PlaceMask no_more_of(const GpusHeld& gpus) const;
  uint32_t left_for_gpus() const;
  template <class F>
  void each_held(const GpusTouched& gpus, F&& f);

  std::vector<ChunkOut> entries_;
  const Pace pace_;
  const uint64_t chunk_bytes_;
  uint32_t used_ = 0;
  uint32_t of_gpus_ = 0;  // of these
  Held host_;
  GpusHeld gpus_[2];             // here, there
  std::atomic<double> rate_{0};  // smoothed
  Nanos busy_since_ = 0;         // when there was something outstanding again
  Nanos measured_since_ = 0;     // of answered_bytes_
  uint64_t answered_bytes_ = 0;
};

}  // namespace tcpx
