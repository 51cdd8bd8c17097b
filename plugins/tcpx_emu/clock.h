#pragma once

#include <time.h>

#include <chrono>
#include <cstdint>

namespace tcpx_emu {

using Nanos = int64_t;
inline constexpr Nanos kMicro = 1000, kMilli = 1000 * kMicro, kSecond = 1000 * kMilli;

inline Nanos now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// CPU time of the calling thread; a system call.
inline Nanos thread_cpu_ns() {
  timespec ts;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return ts.tv_sec * kSecond + ts.tv_nsec;
}

}  // namespace tcpx_emu
