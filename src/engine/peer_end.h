// The end of a peer: its lanes are closed, what goes on in its session is ended, then the lanes,
// their loops and their threads are given back.
//
// In steps that wait for nobody, because a lane's thread may be in a plugin's call for ever. What
// cannot be done for want of memory is done with a later tick.
#pragma once

#include <atomic>
#include <vector>

#include "base/caught.h"
#include "engine/lane_report.h"
#include "engine/peer_state.h"

namespace tcpx {

class PeerEnd {
 public:
  PeerEnd(Peer& peer, PeerState& state) : peer_(peer), state_(state) {}

  // ---- it is wanted ----
  // Has the lanes closed; when they are, ends every transfer and notification with `status`.
  // Idempotent. Not from a loop. Waits for nobody: await does, for those to whom it matters that
  // nothing of the peer touches memory any more.
  void begin(const Status& status) noexcept;
  void ask(const Status& status) noexcept;  // from a loop: the service thread begins it
  // The same with no memory to be had.
  void fail(tcpx_code code) noexcept;
  // What f throws ends the peer.
  template <class F>
  void or_fail(F&& f) noexcept {
    try {
      f();
    } catch (...) {
      fail(caught(TCPX_BLAST_PEER).code());
    }
  }
  static Status left();  // the peer said goodbye

  // ---- from lanes, in their loops ----
  void lane_said_bye(PeerLane& lane);
  void lane_shut();

  // ---- it goes on ----
  bool tick(Nanos now);  // service thread. Whether the end has begun, however far it is
  void await();
  // Begins it and waits for it, however often that takes for want of memory. Of an engine whose
  // service has ended.
  void for_good(const Status& status) noexcept;
  bool ended_wholly();

  // ---- what remains ----
  // Of a session that has ended wholly: gives its lanes and their threads back, and keeps what is
  // told of them. False: not within `patience`, or a plugin hangs; ask again.
  bool dismantle(Nanos patience);
  bool dismantled();
  size_t lanes_not_shut();
  // What is told of lanes that are gone; null: they are not.
  const std::vector<LaneReport>* past_lanes(PeerLock&) const {
    return dismantled_ ? &past_lanes_ : nullptr;
  }

 private:
  bool begin_failed();
  bool advance(Nanos now);

  Peer& peer_;
  PeerState& state_;
  std::atomic<tcpx_code> failure_{TCPX_OK};  // to be ended with it by the service thread
  std::atomic<bool> asked_{false};           // the service thread knows

  // ---- guarded by the peer's lock ----
  std::vector<LaneReport> past_lanes_;
  bool dismantled_ = false;
};

}  // namespace tcpx
