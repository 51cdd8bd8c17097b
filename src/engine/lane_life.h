// The life of a lane, whatever it carries: its loop, its start, who may ask it something, and its
// end. Any thread, except where marked.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "engine/lane_core.h"

namespace tcpx {

using LanesKept = std::shared_ptr<const void>;  // see lane_set.h

class LaneLife {
 public:
  uint32_t index() const { return core_.index; }
  Loop& loop() const { return core_.loop; }
  const LaneTraits& traits() const { return core_.traits; }  // of its path

  // ---- it is asked ----
  // Runs f in the exclusive section. False: the lane's plugin hangs; f must own its captures.
  // So it may be with little patience, where others must not be held up.
  // What f throws is thrown here too, and ends the lane and its peer.
  bool in_loop(std::function<void()> f, Nanos patience = kNever);
  // For the watchdog, which waits for nobody: one question at a time.
  void ask_if_answered(const LanesKept& kept, std::function<void()> question);
  void wake() { core_.wake(); }

  // ---- it is shut ----
  // Closes the lane, or has it never start. When that has run nothing of it touches memory.
  Loop::Asked ask_shut(const Status& status, const LanesKept& kept);
  bool is_shut() const { return is_shut_.load(std::memory_order_acquire); }
  void shut(const Status& status);  // in the exclusive section
  // The same, because the peer has given it up: it is told that the lane is closed when nothing of
  // it touches memory any more.
  void shut_for_peer(const Status& status);
  // Moves of a lane that is closed do not come to an end.
  bool moves_hang(Nanos now) const;
  // Of a lane that is shut, or never started: ends the thread of a loop of its own. False: not yet.
  // Not from that loop.
  bool stop_loop(Nanos patience) { return !core_.traits.own_loop() || core_.loop.stop(patience); }

  // ---- facts ----
  const LaneLoad& load() const { return core_.load; }
  bool open() const { return core_.open(); }
  bool started() const { return core_.is_started(); }  // it has a lane
  uint32_t in_flight() const { return core_.load.held(); }
  bool idle() const { return core_.load.idle(); }
  // Once it has started: facts of it, and the lane itself in the exclusive section.
  Lane& lane() { return *core_.lane; }
  bool settled() const { return core_.lane->settled(); }
  // Equal for lanes on the same interface.
  size_t rail() const { return rail_.load(std::memory_order_relaxed); }

 protected:
  // `loop`: one of the engine's, or one that this lane alone uses.
  LaneLife(Peer& peer, uint32_t index, std::shared_ptr<Loop> loop, const LaneTraits& traits)
      : loop_owner_(std::move(loop)), core_(peer, index, *loop_owner_, traits) {}
  ~LaneLife() = default;

  Status start(const LaneFactory& factory, LaneSink& sink);
  void interface_is_known();
  // The lane is down, but what has arrived is still being moved.
  void ends_later() { ending_since_.store(now_ns(), std::memory_order_relaxed); }
  void has_ended();

 private:
  void tell_peer();

  const std::shared_ptr<Loop> loop_owner_;
  bool shut_ = false;        // in the exclusive section
  bool peer_waits_ = false;  // the same: to hear that it is closed
  std::atomic<bool> is_shut_{false};
  std::atomic<bool> owes_answer_{false};  // to the watchdog
  std::atomic<Nanos> ending_since_{0};    // closed, with moves under way
  std::atomic<size_t> rail_{0};

 protected:
  LaneCore core_;
};

}  // namespace tcpx
