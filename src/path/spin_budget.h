// How long a driver that finds nothing goes on polling before it sleeps.
//
// Spinning pays while what we wait for is made by somebody who has a core (or a NIC) of his own; if
// he has to wait for ours, every spin delays him. Nobody can tell beforehand, so what the last
// spins brought decides how long the next one is: it doubles, up to a limit, when something came,
// and halves when it was in vain, that is when another took the core meanwhile, or when the sleep
// after it was short.
//
// Times go in, a verdict comes out: no clock, no thread.
#pragma once

#include <algorithm>
#include <atomic>

#include "path/tuning.h"

namespace tcpx {

class SpinBudget {
 public:
  explicit SpinBudget(Nanos most) : most_(most), budget_(most) {}

  // After a poll that ended at `now` and found something, or nothing; engaged: something is due.
  // Whether to poll on. If not: sleep, and say how long.
  bool polled(Nanos now, bool found, bool engaged) {
    if (found) {
      if (idle_since_ != 0) budget_ = std::min(most_, 2 * budget_ + kMicro);
      idle_since_ = 0;
      return true;
    }
    if (idle_since_ == 0) begin(now);
    bool preempted = now - last_poll_ > tuning::kPreempted;
    last_poll_ = now;
    if (!preempted && now - idle_since_ < budget_ * (engaged ? tuning::kEngagedFactor : 1))
      return true;
    if (preempted) budget_ /= 2;
    spun_ = budget_ > 0;
    idle_since_ = 0;
    return false;
  }
  void slept(Nanos from, Nanos to) {
    if (spun_ && to - from < tuning::kShortSleep) budget_ /= 2;
    spun_ = false;
  }
  // The next poll is somebody else's, or we sleep although there was something left to spin.
  void begin_anew() { idle_since_ = 0; }
  Nanos budget() const { return budget_; }

 private:
  void begin(Nanos now) {
    idle_since_ = last_poll_ = now;
    spun_ = false;
    if (budget_ < kMicro && ++skipped_ % tuning::kProbeEvery == 0) budget_ = most_ / 4;
  }

  const Nanos most_;
  Nanos budget_;
  Nanos idle_since_ = 0;  // 0: the last poll found something
  Nanos last_poll_ = 0;
  bool spun_ = false;  // before this sleep, and in vain
  uint32_t skipped_ = 0;
};

// How many loops of an engine are being driven. Each driver has a core, or will want one as soon as
// something happens; spinning is for cores that are free.
class Drivers {
 public:
  void spin_up_to(int most) { most_.store(most, std::memory_order_relaxed); }
  void enter() { now_.fetch_add(1, std::memory_order_relaxed); }
  void leave() { now_.fetch_sub(1, std::memory_order_relaxed); }
  bool may_spin() const {
    return now_.load(std::memory_order_relaxed) <= most_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<int> now_{0};
  std::atomic<int> most_{1 << 20};
};

}  // namespace tcpx
