// A mutex that says what it guards: clang's thread-safety analysis (-Wthread-safety, a part of
// ./run lint) refuses code that touches it without the lock. std::mutex has no such words in
// libstdc++. To gcc all of this is nothing.
//
// It follows one function at a time. A function that needs the lock says so (TCPX_REQUIRES), and so
// does a lambda that a wait calls with it.
#pragma once

#include <mutex>

#if defined(__clang__)
#define TCPX_ANNOTATION(words) __attribute__((words))
#else
#define TCPX_ANNOTATION(words)
#endif
#define TCPX_LOCKABLE TCPX_ANNOTATION(capability("mutex"))
#define TCPX_SCOPED_LOCK TCPX_ANNOTATION(scoped_lockable)
#define TCPX_GUARDED_BY(mutex) TCPX_ANNOTATION(guarded_by(mutex))
#define TCPX_REQUIRES(mutex) TCPX_ANNOTATION(requires_capability(mutex))
#define TCPX_ACQUIRE(...) TCPX_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TCPX_TRY_ACQUIRE(...) TCPX_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TCPX_RELEASE(...) TCPX_ANNOTATION(release_capability(__VA_ARGS__))
// With the reason beside it.
#define TCPX_NOT_CHECKED TCPX_ANNOTATION(no_thread_safety_analysis)

namespace tcpx {

class TCPX_LOCKABLE Mutex {
 public:
  void lock() TCPX_ACQUIRE() { native_.lock(); }
  void unlock() TCPX_RELEASE() { native_.unlock(); }
  bool try_lock() TCPX_TRY_ACQUIRE(true) { return native_.try_lock(); }

 private:
  friend class MutexLock;
  std::mutex native_;
};

class TCPX_SCOPED_LOCK MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TCPX_ACQUIRE(mutex) : lock_(mutex.native_) {}
  ~MutexLock() TCPX_RELEASE() {}
  void unlock() TCPX_RELEASE() { lock_.unlock(); }
  void lock() TCPX_ACQUIRE() { lock_.lock(); }
  // For condition variables, which give it back as they found it.
  std::unique_lock<std::mutex>& native() { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace tcpx
