// Fences that wait for something of a lane: asked in every round until the lane has let go. In the
// exclusive section of its loop.
#pragma once

#include <memory>
#include <vector>

#include "engine/lane_core.h"

namespace tcpx {

class Fence;
class PeerLane;

class LaneFences {
 public:
  LaneFences(PeerLane& lane, LaneCore& core);

  // Asks until nothing is held any more, now and in every round to come.
  void add(const std::shared_ptr<Fence>& fence) noexcept;
  void look() noexcept;
  bool empty() const { return fences_.empty(); }
  // A fence waits for what a path cannot call back as long as that moves, until `close_at`; then
  // the lane is closed, which is the last fence there is, but for moves. How much of `held` is
  // left.
  size_t held_or_close(size_t held, Nanos close_at);
  void let_go_all();  // the lane has ended

 private:
  PeerLane& lane_;
  LaneCore& core_;
  std::vector<std::shared_ptr<Fence>> fences_;
};

}  // namespace tcpx
