// What the service thread looks for now and then: deadlines, silence, plugins that hang, goodbyes
// that do not come. Nothing here waits for a lane: it is asked, and looked at with a later tick. A
// lane whose thread is in a plugin's call may be there for ever, and to wait for it would hold up
// the engine's other peers.
#pragma once

#include <atomic>

#include "base/line_limit.h"
#include "engine/peer_state.h"

namespace tcpx {

class PeerWatch {
 public:
  PeerWatch(Peer& peer, PeerState& state) : peer_(peer), state_(state) {}

  void tick(Nanos now);  // service thread

 private:
  bool end_hung(Nanos now);
  bool end_refused(Nanos now);
  bool end_left(Nanos now);
  bool in_a_call(Nanos now);
  void watch_lanes(Nanos now);
  void watch_lane(PeerLane& lane, const LanesKept& kept, Nanos now, Nanos latest, bool alone);
  void watch_carrier(PeerLane& lane, const LanesKept& kept, Nanos now);
  void report_stalls(Nanos now);
  void go_on_after_refusals(Nanos now);

  Peer& peer_;
  PeerState& state_;
  // Since the peer's first goodbye; and without a byte on the lanes that have not brought it.
  uint32_t left_ticks_ = 0, quiet_ticks_ = 0;
  uint64_t heard_leaving_ = 0;
  Nanos last_left_tick_ = 0;
  Nanos quiet_until_ = 0;  // of all lanes at once
  Nanos last_watch_ = 0;
  std::atomic<Nanos> last_stall_report_{0};  // written in loops
  LineLimit refusal_lines_{"lanes were held because of refusals"};
};

}  // namespace tcpx
