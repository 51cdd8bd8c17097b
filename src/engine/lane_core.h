// What the parts of a lane share: whose lane it is, its loop, its path, how full it is, and what of
// it is being moved. In the exclusive section of its loop, but for what is const or atomic.
#pragma once

#include <atomic>
#include <memory>

#include "base/caught.h"
#include "engine/lane_load.h"
#include "engine/lane_moves.h"
#include "engine/shared.h"
#include "path/lane.h"
#include "path/lane_traits.h"

namespace tcpx {

class Peer;

struct LaneCore {
  LaneCore(Peer& of_peer, uint32_t number, Loop& its_loop, const LaneTraits& of_path);

  Peer& peer;
  EngineShared& shared;
  const uint32_t index;
  const uint32_t window;  // chunks, each way
  Loop& loop;
  const LaneTraits traits;  // of its path
  std::unique_ptr<Lane> lane;
  std::atomic<bool> started{false};  // it has a lane
  LaneLoad load;
  LaneMoves moves;
  uint64_t payload_received = 0;
  bool said_bye = false;

  void assert_inside() const { loop.assert_inside(); }
  bool open() const { return load.is_open(); }
  bool is_started() const { return started.load(std::memory_order_acquire); }
  void wake() { loop.wake(lane->source_index()); }  // once it is open; any thread
  void make_waiting() { loop.make_waiting(lane->source_index()); }
  // What f throws ends the lane and its peer, and goes no further.
  template <class F>
  void or_close(F&& f) noexcept {
    try {
      f();
    } catch (...) {
      if (is_started()) lane->on_failure(caught(TCPX_BLAST_PEER));
    }
  }

  // Whether the payload has to pass through a slot before the lane can send it.
  bool stages(const TxFrame& frame) const {
    return !frame.payload.empty() && (moves.stages(frame.place) || !lane->reaches(frame));
  }
  void into_slot(TxFrame* frame) {
    moves.fill(frame);
    look_at_moves_soon();
  }
  void look_at_moves_soon();
  size_t moves_running() const { return moves.running() + lane->moving(); }
};

}  // namespace tcpx
