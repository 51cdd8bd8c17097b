#include "engine/goodbye.h"

#include "engine/peer.h"

namespace tcpx {

namespace {

// Notifications that nobody waits for are on their way, or will be when the lanes are there.
void await_last_words(Peer& peer, Nanos deadline) {
  PeerLock lock(peer.parts());
  lock.wait_changed(deadline, [&] { return lock->notices.empty() || lock->session.over(); });
}

void send_byes(Peer& peer) {
  LaneList open;
  {
    PeerLock lock(peer.parts());
    lock->session.leave();
    open = LaneList(lock->lanes.keep());
    for (auto& lane : lock->lanes)
      if (lane && lane->open()) open.add(lane.get());
  }
  for (PeerLane* lane : open)
    lane->in_loop([lane, keep = peer.shared_from_this()] { lane->send_bye(); });
}

// The peer closes when it has seen the goodbye; our close then cannot destroy it in flight.
void await_close(Peer& peer, Nanos deadline) {
  PeerLock lock(peer.parts());
  lock.wait_changed(deadline,
                    [&] { return lock->scheduler.open_lanes().empty() || lock->session.over(); });
}

}  // namespace

void say_goodbye(const std::vector<std::shared_ptr<Peer>>& peers, const Status& status,
                 Nanos patience) {
  const Status of_transfers(status.code(), TCPX_BLAST_TRANSFER, status.text());
  for (auto& peer : peers) peer->transfers().end_all_now(of_transfers);
  Nanos give_up = now_ns() + patience;
  for (auto& peer : peers) await_last_words(*peer, give_up);
  for (auto& peer : peers) send_byes(*peer);
  give_up = now_ns() + patience;
  for (auto& peer : peers) await_close(*peer, give_up);
  for (auto& peer : peers) peer->ending().begin(status);
  for (auto& peer : peers) peer->ending().await();
}

}  // namespace tcpx
