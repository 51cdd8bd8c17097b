#include "gpu/move_queue.h"

namespace tcpx::gpu {

uint32_t MoveQueue::push(bool out, std::span<const iovec> memory, uint8_t* slot, Nanos now) {
  const uint32_t at = free_.back();
  MoveJob& job = jobs_[at];
  job.memory.assign(memory.begin(), memory.end());  // may throw: nothing has changed yet
  free_.pop_back();
  job.out = out;
  job.slot = slot;
  job.pushed = now;
  job.state.store(MoveJob::State::kQueued, std::memory_order_relaxed);
  const uint32_t place = pushed_.load(std::memory_order_relaxed);
  ring_[place % kJobs].store(at, std::memory_order_relaxed);
  pushed_.store(place + 1, std::memory_order_seq_cst);  // before the look whether the thread sleeps
  return at;
}

MoveState MoveQueue::look(uint32_t at, bool lost, std::string* why) {
  MoveJob& job = jobs_[at];
  const MoveJob::State state = job.state.load(std::memory_order_acquire);
  MoveState result = MoveState::kRunning;
  if (state == MoveJob::State::kRefused) {
    result = MoveState::kFailed;
  } else if (state == MoveJob::State::kUnderWay &&
             static_cast<int32_t>(reached(job.lane) - job.mark) >= 0) {
    result = job.why.empty() ? MoveState::kDone : MoveState::kFailed;
  } else if (lost && state != MoveJob::State::kQueued) {
    result = MoveState::kFailed;  // with the GPU's last words, which the caller has
  }
  if (result == MoveState::kRunning) return result;
  if (result == MoveState::kFailed) *why = std::move(job.why);
  job.why.clear();
  job.state.store(MoveJob::State::kFree, std::memory_order_relaxed);
  free_.push_back(at);
  return result;
}

MoveJob* MoveQueue::next() {
  if (taken_ == pushed_.load(std::memory_order_acquire)) return nullptr;
  return &jobs_[ring_[taken_ % kJobs].load(std::memory_order_relaxed)];
}

}  // namespace tcpx::gpu
