#include "gpu/move_queue.h"

#include <utility>

#include "base/caught.h"

namespace tcpx::gpu {

uint32_t MoveQueue::push(bool out, std::span<const iovec> memory, uint8_t* slot, Nanos now) {
  const uint32_t at = free_.back();
  MoveJob& job = jobs_[at];
  job.memory.assign(memory.begin(), memory.end());  // may throw: nothing has changed yet
  free_.pop_back();
  job.out = out;
  job.slot = slot;
  job.bytes = 0;
  for (const iovec& part : memory) job.bytes += part.iov_len;
  job.pushed = now;
  job.copies = job.kernels = 0;
  job.lacked_kernel = job.failed = false;
  job.submitted = 0;
  job.state.store(MoveJob::State::kQueued, std::memory_order_relaxed);
  const uint32_t place = pushed_.load(std::memory_order_relaxed);
  ring_[place % kJobs].store(at, std::memory_order_relaxed);
  pushed_.store(place + 1, std::memory_order_seq_cst);  // before the look whether the thread sleeps
  return at;
}

MoveState MoveQueue::look(uint32_t at, bool lost, MoveEnd* end) {
  MoveJob& job = jobs_[at];
  const MoveJob::State state = job.state.load(std::memory_order_acquire);
  MoveState result = MoveState::kRunning;
  if (state == MoveJob::State::kRefused) {
    result = MoveState::kFailed;
  } else if (state == MoveJob::State::kUnderWay &&
             static_cast<int32_t>(reached(job.lane) - job.mark) >= 0) {
    result = job.failed ? MoveState::kFailed : MoveState::kDone;
  } else if (lost && state != MoveJob::State::kQueued) {
    result = MoveState::kFailed;  // with the GPU's last words, which the caller has
  }
  if (result == MoveState::kRunning) return result;
  *end = {std::move(job.why), job.copies,    job.kernels, job.lacked_kernel,
          job.pushed,         job.submitted, now_ns()};
  job.why.clear();
  job.range.end();
  job.state.store(MoveJob::State::kFree, std::memory_order_relaxed);
  free_.push_back(at);
  looked_at_.store(looked_at_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return result;
}

MoveJob* MoveQueue::next() {
  if (taken_ == pushed_.load(std::memory_order_acquire)) return nullptr;
  return &jobs_[ring_[taken_ % kJobs].load(std::memory_order_relaxed)];
}

bool MoveQueue::under_way() const {
  for (size_t i = 0; i < kLanes; ++i)
    if (under_way(static_cast<Lane>(i))) return true;
  return false;
}

void MoveQueue::refuse(MoveJob& job, const std::string& why) {
  (void)quietly([&] { job.why = why; });
  ++refused_;
  job.state.store(MoveJob::State::kRefused, std::memory_order_release);
}

// How many are over of all that were ever taken: each has a mark, or was refused.
uint32_t MoveQueue::over(bool lost) const {
  if (lost) return taken_;
  uint32_t all = refused_;
  for (size_t i = 0; i < kLanes; ++i) all += reached(static_cast<Lane>(i));
  return all;
}

// Calls the watcher, unless it may be gone: close() waits until that is over.
template <class F>
void MoveQueue::with_watcher(F&& f) noexcept {
  at_watcher_.store(true, std::memory_order_seq_cst);
  if (!closed_.load(std::memory_order_seq_cst)) f(watcher_);
  at_watcher_.store(false, std::memory_order_release);
}

bool MoveQueue::unwatched() noexcept {
  bool looks = true;
  with_watcher([&](MoveWatcher& watcher) { looks = watcher.looks(); });
  return !looks;
}

void MoveQueue::tell(bool lost) noexcept {
  told_ = over(lost);
  with_watcher([](MoveWatcher& watcher) { watcher.look_now(); });
}

void MoveQueue::close() noexcept {
  closed_.store(true, std::memory_order_seq_cst);
  while (at_watcher_.load(std::memory_order_seq_cst)) pause_cpu();
}

}  // namespace tcpx::gpu
