// How often a peer may name memory that it may not use. Everybody is wrong now and then: a region
// that was deregistered is named once more by all chunks on their way. Who is wrong again and again
// is guessing, and is not read for a while: of the 2^42 generations of a region it then tries 2^35
// in a year.
#pragma once

#include <algorithm>

#include "base/clock.h"
#include "base/mutex.h"

namespace tcpx {

// Any thread. Only refusals, and lanes that are held because of them, come here.
class RefusalBudget {
 public:
  // Windows of 64 chunks on 64 lanes, all refused, are free.
  static constexpr int64_t kBurst = 4096;
  static constexpr int64_t kPerSecond = 1000;

  // One was refused. False: no more for now.
  bool spend(Nanos now) {
    MutexLock lock(mu_);
    refill(now);
    if (left_ > 0) --left_;
    return left_ > 0;
  }
  bool has_some(Nanos now) {
    MutexLock lock(mu_);
    refill(now);
    return left_ > 0;
  }

 private:
  void refill(Nanos now) TCPX_REQUIRES(mu_) {
    constexpr Nanos kEach = kSecond / kPerSecond;
    if (since_ == 0) since_ = now;
    int64_t earned = std::max<int64_t>(0, now - since_) / kEach;
    left_ = std::min(kBurst, left_ + std::min(kBurst, earned));
    since_ += earned * kEach;
  }

  Mutex mu_;
  int64_t left_ TCPX_GUARDED_BY(mu_) = kBurst;
  Nanos since_ TCPX_GUARDED_BY(mu_) = 0;  // of the last whole one that was earned
};

}  // namespace tcpx
