// Answers that wait to be sent on a lane. A peer that asks and does not read what it is answered
// would make them heap up: beyond a number it is not read any more, until it has read half of them.
// In the exclusive section of the lane's loop; since when: anybody.
#pragma once

#include <atomic>
#include <cstddef>

#include "base/clock.h"

namespace tcpx {

class AnswerFlow {
 public:
  explicit AnswerFlow(size_t most) : most_(most) {}

  // Whether reading has to stop.
  bool queued() {
    if (++waiting_ != most_) return false;
    unread_since_.store(now_ns(), std::memory_order_relaxed);
    return true;
  }
  // Whether it may go on.
  bool sent() {
    if (--waiting_ != most_ / 2 || unread_since() == 0) return false;
    unread_since_.store(0, std::memory_order_relaxed);
    return true;
  }
  // Since when the peer has not read its answers; 0: it does.
  Nanos unread_since() const { return unread_since_.load(std::memory_order_relaxed); }

 private:
  const size_t most_;
  size_t waiting_ = 0;
  std::atomic<Nanos> unread_since_{0};
};

}  // namespace tcpx
