// What a peer may not use: counted, and a lane that brings too much of it is not read for a while.
// In the exclusive section of its loop, but for hold().
#pragma once

#include <atomic>

#include "engine/lane_core.h"

namespace tcpx {

class LaneRefusals {
 public:
  explicit LaneRefusals(LaneCore& core) : core_(core) {}

  void count(tcpx_code code);
  // The lane is not read, because the peer was refused too often. Any thread.
  bool hold() const { return hold_.load(std::memory_order_relaxed); }
  // The peer's service tick wakes the lane when it may go on.
  void go_on() {
    if (hold()) end_hold();
  }

 private:
  void end_hold();

  LaneCore& core_;
  std::atomic<bool> hold_{false};
};

}  // namespace tcpx
