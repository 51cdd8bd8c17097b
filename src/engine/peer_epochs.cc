// Epochs: how old a transfer is, as the owner of the memory counts. A region that was suspended and
// has come back is refused to what was posted before, whether anything of that had arrived or not.
#include "base/wait.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

// Whether it was smaller.
bool raise(std::atomic<uint64_t>* value, uint64_t to) {
  uint64_t before = value->load(std::memory_order_relaxed);
  while (before < to)
    if (value->compare_exchange_weak(before, to)) return true;
  return false;
}

}  // namespace

// The other side knows by now, or will before it can post anything.
void Peer::start_epochs(uint64_t of_peer, uint64_t ours) {
  hear_epoch(of_peer);
  epoch_was_heard(ours);
}

// From now on what is posted to the peer says that it is this young.
void Peer::hear_epoch(uint64_t of_peer) {
  raise(&epoch_of_peer_, of_peer);
}

void Peer::epoch_was_heard(uint64_t ours) {
  if (!raise(&epoch_answered_, ours)) return;
  std::lock_guard lock(mu);
  changed_.notify_all();
}

// On every lane: one of them may be full of data, or about to be lost.
void Peer::tell_epoch() {
  std::lock_guard lock(mu);
  for (auto& lane : lanes_)
    if (lane && lane->open()) lane->wake();
}

// Without it nothing goes wrong: what such a peer posts before it has heard is refused.
void Peer::await_epoch_heard(uint64_t epoch, Nanos deadline) {
  std::unique_lock<std::mutex> lock(mu);
  auto answered = [&](uint64_t one) { return epoch_answered_.load() >= one; };
  auto gone = [&] { return state_ == State::kEnded || live_lanes_locked() == 0; };
  if (!answered(epoch_due_)) return;
  wait_until(changed_, lock, deadline, [&] { return answered(epoch) || gone(); });
  if (!answered(epoch) && !gone()) epoch_due_ = epoch;
}

}  // namespace tcpx
