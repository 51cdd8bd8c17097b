// What kind of build this is and how patient a test has to be with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <thread>

namespace tcpx::test {

#if defined(__SANITIZE_ADDRESS__)
#define TCPX_TEST_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define TCPX_TEST_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TCPX_TEST_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define TCPX_TEST_TSAN 1
#endif
#endif

#if defined(TCPX_TEST_ASAN) || defined(TCPX_TEST_TSAN)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

using Clock = std::chrono::steady_clock;
using Ms = std::chrono::milliseconds;

// Counts and sizes shrink under sanitizers, bounds on time grow.
template <class T>
constexpr T smaller_if_sanitized(T normal, T sanitized) {
  return kSanitized ? sanitized : normal;
}
inline constexpr Ms patience(int64_t ms) {
  return Ms{kSanitized ? ms * 4 : ms};
}

// Nothing in these tests waits without a bound; this one is far above what a correct engine needs.
inline constexpr Ms kLong = patience(20'000);

// For what grows with its bytes: 100 MB/s is what a busy machine under a sanitizer still does.
inline constexpr Ms patience_for(uint64_t bytes) {
  return kLong + patience(static_cast<int64_t>(bytes / 100'000));
}

inline bool long_tests() {
  const char* value = std::getenv("TCPX_TEST_LONG");
  return value != nullptr && *value != '\0' && *value != '0';
}

// Waits until `done` holds; false if it does not within `limit`.
inline bool eventually(const std::function<bool()>& done, Ms limit = kLong, Ms step = Ms{2}) {
  auto end = Clock::now() + limit;
  for (;;) {
    if (done()) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(step);
  }
}

class Stopwatch {
 public:
  Ms elapsed() const { return std::chrono::duration_cast<Ms>(Clock::now() - start_); }

 private:
  Clock::time_point start_ = Clock::now();
};

}  // namespace tcpx::test
