#include "failing_threads.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>

namespace {
constexpr int64_t kOff = INT64_MIN;
std::atomic<int64_t> threads_left{kOff}, threads_last{0};
std::atomic<bool> thread_failed{false};
}  // namespace

namespace tcpx::test {

void fail_threads(int64_t n, int64_t more) {
  thread_failed = false;
  threads_last = -more;
  threads_left = n;
}

bool stop_failing_threads() {
  threads_left = kOff;
  return thread_failed.exchange(false);
}

}  // namespace tcpx::test

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attr,
                                                                     void* (*start)(void*),
                                                                     void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left.load() != kOff) {
    int64_t left = threads_left.fetch_sub(1) - 1;
    if (left <= 0 && left >= threads_last) {
      thread_failed = true;
      return EAGAIN;
    }
  }
  return next(thread, attr, start, argument);
}
