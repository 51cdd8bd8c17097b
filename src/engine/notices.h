// Notifications to a peer, by themselves: sent, confirmed, sent again. Those that go directly
// behind their data are their transfers' (transfers.h).
#pragma once

#include <memory>

#include "engine/peer_state.h"

namespace tcpx {

class Notices {
 public:
  Notices(Peer& peer, PeerState& state) : peer_(peer), state_(state) {}

  // Sends one and waits until the peer has it. Not from a loop.
  Status notify(std::shared_ptr<Notice> notice, Nanos deadline);
  // The peer does not take it, whenever it comes.
  static Status refused();

  // ---- from lanes, in their loops ----
  bool may_have_more() const { return state_.may_have_notices(); }
  std::shared_ptr<Notice> next(uint32_t lane);
  void answered(uint64_t id, wire::NoticeVerdict verdict);

  // ---- service thread ----
  void end_pause(Nanos now);

  // ---- with the lock ----
  void queue(PeerLock& lock, const std::shared_ptr<Notice>& notice);
  void withdraw(PeerLock& lock, const std::shared_ptr<Notice>& notice);
  void end_all(PeerLock& lock);

 private:
  Peer& peer_;
  PeerState& state_;
};

}  // namespace tcpx
