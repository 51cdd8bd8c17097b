// Memory that has to be let go of: every lane stops what it can at once, and says when nothing of
// it touches the memory any more.
//
// Lanes are asked in their loops, and nobody waits for one that is in somebody else's code. What a
// path cannot call back (a plugin's request, a move) is looked at again in every round of the
// lane's loop until it is through, or until `close_at`, when the lane is closed: that is the last
// fence there is.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/mutex.h"

namespace tcpx {

class LaneList;
class Peer;
class PeerLane;

class Fence : public std::enable_shared_from_this<Fence> {
 public:
  // In the lane's loop: stops what can be stopped. How much still touches the memory.
  using Question = std::function<size_t(PeerLane&)>;
  enum class Result { kHolds, kNotYet, kPluginHangs };

  // What a path cannot call back is waited for while it moves, but no longer.
  static constexpr Nanos kLongestHold = kSecond;

  explicit Fence(Question question, Nanos close_at = kNever)
      : question_(std::move(question)), close_at_(close_at) {}

  // Asks these lanes of the peer. All that is asked comes before the first look at the result.
  void ask(const std::shared_ptr<Peer>& peer, const LaneList& lanes);
  // Nobody touches the memory any more.
  bool holds() const { return missing_.load(std::memory_order_acquire) == 0; }
  // `hangs`: whether a thread that was asked hangs in a plugin.
  Result await(Nanos deadline, const std::function<bool(Nanos now)>& hangs);

  // ---- in a lane's loop ----
  // Whether the lane holds nothing of it any more.
  bool is_let_go_by(PeerLane& lane) const;
  void let_go();  // by one lane, once

 private:
  const Question question_;
  const Nanos close_at_;
  std::atomic<size_t> missing_{0};  // lanes
  Mutex mu_;
  std::condition_variable changed_;
};

}  // namespace tcpx
