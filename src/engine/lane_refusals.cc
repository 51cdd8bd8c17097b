#include "engine/lane_refusals.h"

#include "engine/peer.h"

namespace tcpx {

void LaneRefusals::count(tcpx_code code) {
  EngineCounters& counters = core_.shared.counters;
  if (code == TCPX_OUT_OF_RANGE)
    counters.rejected_ranges.fetch_add(1);
  else if (code == TCPX_ACCESS_DENIED)
    counters.rejected_access.fetch_add(1);
  else
    counters.rejected_regions.fetch_add(1);
  if (core_.peer.refusals().spend(now_ns()) || hold()) return;
  hold_.store(true, std::memory_order_relaxed);
  counters.refusal_holds.fetch_add(1, std::memory_order_relaxed);
  core_.lane->hold_reading(ReadHold::kRefusals);
}

void LaneRefusals::end_hold() {
  if (!core_.peer.refusals().has_some(now_ns())) return;
  hold_.store(false, std::memory_order_relaxed);
  core_.lane->resume_reading(ReadHold::kRefusals);
}

}  // namespace tcpx
