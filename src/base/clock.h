// One clock for deadlines, ages and receipts: CLOCK_MONOTONIC in nanoseconds.
#pragma once

#include <time.h>

#include <cstdint>

namespace tcpx {

using Nanos = int64_t;
inline constexpr Nanos kMicro = 1'000;
inline constexpr Nanos kMilli = 1'000'000;
inline constexpr Nanos kSecond = 1'000'000'000;
inline constexpr Nanos kNever = INT64_MAX;

inline Nanos now_ns() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * kSecond + ts.tv_nsec;
}

// now + delay, saturating: a huge timeout means "never", not a date in the past.
inline Nanos deadline_after(Nanos now, Nanos delay) {
  return delay >= kNever - now ? kNever : now + delay;
}

// Leaves the core's other thread the execution units for a moment.
inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Lets time pass without a system call.
inline void relax_until(Nanos when) {
  do {
    for (int i = 0; i < 8; ++i) pause_cpu();
  } while (now_ns() < when);
}
inline void relax(Nanos length) {
  relax_until(now_ns() + length);
}

}  // namespace tcpx
