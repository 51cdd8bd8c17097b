#pragma once

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

}  // namespace tcpx_emu
