#include "engine/epoch_talk.h"

namespace tcpx {

// The other side knows by now, or will before it can post anything.
void EpochTalk::start(uint64_t of_peer, uint64_t ours) {
  hear(of_peer);
  was_heard(ours);
}

void EpochTalk::was_heard(uint64_t ours) {
  if (!epochs_.was_heard(ours)) return;
  PeerLock lock(state_);
  lock.tell_changed();
}

// On every lane: one of them may be full of data, or about to be lost.
void EpochTalk::tell() {
  PeerLock lock(state_);
  lock.wake_all();
}

// Without it nothing goes wrong: what such a peer posts before it has heard is refused.
void EpochTalk::await_heard(uint64_t epoch, Nanos deadline) {
  PeerLock lock(state_);
  auto heard = [&](uint64_t one) { return answered() >= one; };
  auto gone = [&] { return lock->session.over() || lock->scheduler.open_lanes().empty(); };
  if (!heard(due_)) return;
  lock.wait_changed(deadline, [&] { return heard(epoch) || gone(); });
  if (!heard(epoch) && !gone()) due_ = epoch;
}

}  // namespace tcpx
