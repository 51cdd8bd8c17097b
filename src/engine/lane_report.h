// What is told of a lane in counters and receipts, as plain values: what is kept of the lanes of a
// peer that has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "path/lane.h"

namespace tcpx {

class PeerLane;

struct LaneReport {
  uint32_t index = 0;
  bool open = false;
  std::string path, interface, remote;
  uint64_t bytes_out = 0, bytes_in = 0;
  uint64_t frames_out = 0, frames_in = 0;
  uint64_t send_calls = 0, receive_calls = 0;
  uint32_t chunks_in_flight = 0;
  std::optional<CarrierReport> carrier;
};

LaneReport report_of(PeerLane& lane);

}  // namespace tcpx
