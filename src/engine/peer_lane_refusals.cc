// What a peer may not use: counted, and a lane that brings too much of it is not read for a while.
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

void PeerLane::count_refusal(tcpx_code code) {
  EngineCounters& counters = shared_.counters;
  if (code == TCPX_OUT_OF_RANGE)
    counters.rejected_ranges.fetch_add(1);
  else if (code == TCPX_ACCESS_DENIED)
    counters.rejected_access.fetch_add(1);
  else
    counters.rejected_regions.fetch_add(1);
  if (peer_.refusals().spend(now_ns()) || held_for_refusals()) return;
  held_for_refusals_.store(true, std::memory_order_relaxed);
  counters.refusal_holds.fetch_add(1, std::memory_order_relaxed);
  lane_->hold_reading(ReadHold::kRefusals);
}

// The peer's service tick wakes the lane when there may be some.
void PeerLane::end_refusal_hold() {
  if (!peer_.refusals().has_some(now_ns())) return;
  held_for_refusals_.store(false, std::memory_order_relaxed);
  lane_->resume_reading(ReadHold::kRefusals);
}

}  // namespace tcpx
