// Whether a thread that calls somebody else's code hangs there.
//
// Seen by those who look again and again: between two looks so much counts at most, whatever the
// clock says, so that a process that was stopped does not take its own threads for hung. Over when
// the thread comes back.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/mutex.h"
#include "path/tuning.h"

namespace tcpx {

class HangWatch {
 public:
  // ---- the thread that is watched ----
  void round_begins(Nanos now) { began_.store(now, std::memory_order_relaxed); }
  void sleeps() { began_.store(0, std::memory_order_relaxed); }

  // ---- any thread ----
  // How long it has been in its present round; 0 when it sleeps.
  Nanos round_time(Nanos now) const {
    Nanos began = began_.load(std::memory_order_relaxed);
    return began == 0 ? 0 : now - began;
  }
  bool hangs(Nanos now, Nanos patience) {
    Nanos began = began_.load(std::memory_order_relaxed);
    if (began == 0) return false;
    MutexLock lock(mu_);
    if (began != looked_at_) {
      looked_at_ = last_look_ = began;
      seen_ = 0;
    }
    seen_ += std::clamp<Nanos>(now - last_look_, 0, tuning::kLongestLook);
    last_look_ = std::max(last_look_, now);
    return seen_ > patience;
  }

 private:
  std::atomic<Nanos> began_{0};
  Mutex mu_;
  Nanos looked_at_ TCPX_GUARDED_BY(mu_) = 0;  // the round that began then
  Nanos last_look_ TCPX_GUARDED_BY(mu_) = 0;
  Nanos seen_ TCPX_GUARDED_BY(mu_) = 0;  // of that round
};

}  // namespace tcpx
