// Whether both ends of a lane live, and what they tell each other of themselves: pings, and pongs
// that nobody asked for. In the exclusive section of its loop, except where marked.
#pragma once

#include <atomic>

#include "engine/lane_core.h"
#include "engine/small_frames.h"

namespace tcpx {

class LanePings {
 public:
  LanePings(LaneCore& core, SmallFrames& small) : core_(core), small_(small) {}

  // ---- any thread ----
  void ask() {
    asked_.fetch_add(1);
    core_.wake();
  }
  // A lane that we do not read is not silent.
  Nanos last_heard() const {
    const LaneCounters& counters = core_.lane->counters();
    if (counters.read_holds.load(std::memory_order_acquire) != 0) return now_ns();
    return counters.last_receive.load(std::memory_order_relaxed);
  }
  uint64_t bytes_heard() const { return core_.lane->counters().bytes_in.load(); }
  // How much payload the peer says that it has.
  uint64_t peer_received() const { return peer_received_.load(std::memory_order_relaxed); }
  Nanos audible_since = 0;  // of the engine's service thread; see PeerWatch

  // ---- in the exclusive section ----
  void send();  // if there is a reason
  void hear_ping(const wire::Header& ping);
  void hear_pong(const wire::Header& pong);
  // A sign of life, often enough, while the peer's pings may not be read.
  void keep_alive();

 private:
  LaneCore& core_;
  SmallFrames& small_;
  std::atomic<uint64_t> asked_{0};
  uint64_t sent_for_ = 0;              // of asked_
  uint64_t epoch_told_ = kFirstEpoch;  // every peer knows of the first one
  bool unanswered_ = false;
  std::atomic<uint64_t> peer_received_{0};
};

}  // namespace tcpx
