// Waiting on a condition variable until a time of our clock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/clock.h"
#include "base/mutex.h"

namespace tcpx {

// Whether the predicate became true in time; it is called with the lock, which the analysis cannot
// see in here. std::chrono::steady_clock is CLOCK_MONOTONIC here.
template <class Predicate>
bool wait_until(std::condition_variable& cv, std::unique_lock<std::mutex>& lock, Nanos deadline,
                Predicate predicate) TCPX_NOT_CHECKED {
  if (deadline == kNever) {
    cv.wait(lock, predicate);
    return true;
  }
  // Not left to the condition variable: a deadline that has passed still costs a sleep there, and
  // who asks without a timeout asks again and again.
  if (predicate()) return true;
  if (deadline <= now_ns()) return false;
  std::chrono::steady_clock::time_point when{std::chrono::nanoseconds(deadline)};
  return cv.wait_until(lock, when, predicate);
}

template <class Predicate>
bool wait_until(std::condition_variable& cv, MutexLock& lock, Nanos deadline, Predicate predicate) {
  return wait_until(cv, lock.native(), deadline, predicate);
}

}  // namespace tcpx
