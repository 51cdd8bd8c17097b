// The right of a caller who polls again and again to drive a loop alone: one timestamp.
//
// Between two polls nobody is in the loop, and an event would wake its thread, which would then
// take turns with the poller on the same work (4 KiB READ 32 us instead of 15, under NIXL). So a
// thread that is woken while a lease holds sleeps until its end and looks again. Polls that go on
// move the end, without a system call; when they stop, nobody drives for tuning::kLeaseLasts at
// most.
#pragma once

#include <algorithm>
#include <atomic>

#include "path/tuning.h"

namespace tcpx {

class Lease {
 public:
  // ---- in the exclusive section ----
  // A poll begins, and ends. One that follows the last one closely has a lease.
  void poll_begins(Nanos now) {
    if (now - last_poll_ < tuning::kPollsClose) renew(now);
  }
  void poll_ends(Nanos now) {
    last_poll_ = now;
    if (holds(now)) renew(now);
  }
  // What takes longer than a lease lasts (a long post) is done between two polls: who holds one
  // keeps it. `keep` says whether there is one.
  bool keep(Nanos now) {
    if (!holds(now)) return false;
    until_.store(kNever, std::memory_order_relaxed);
    return true;
  }
  void kept(Nanos now) {
    last_poll_ = now;
    renew(now);
  }

  // ---- any thread ----
  bool holds(Nanos now) const { return now < until_.load(std::memory_order_relaxed); }
  // The same now; who never polls need not look at a clock for it.
  bool holds() const {
    const Nanos until = until_.load(std::memory_order_relaxed);
    return until != 0 && now_ns() < until;
  }
  // When the loop's thread has to look again; 0: now, nobody has a lease.
  Nanos next_look(Nanos now) const {
    Nanos until = until_.load(std::memory_order_relaxed);
    return until <= now ? 0 : std::min(until, now + tuning::kLeaseLasts);
  }

 private:
  void renew(Nanos now) { until_.store(now + tuning::kLeaseLasts, std::memory_order_relaxed); }

  std::atomic<Nanos> until_{0};
  Nanos last_poll_ = -tuning::kPollsClose;
};

}  // namespace tcpx
