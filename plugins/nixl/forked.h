// Engines and requests that fork() has copied into a child. Their threads are not there, and a lock
// may be held by one of them for ever: nothing of them is touched. The library says the same of its
// handles; this is for what the plugin has around them.
#pragma once

#include <pthread.h>

#include <atomic>

namespace tcpx_nixl {

namespace forked_detail {
inline std::atomic<unsigned> generation{1};
inline void watch_forks() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  (void)registered;
}
}  // namespace forked_detail

// Where an object was made.
class MadeHere {
 public:
  MadeHere() { forked_detail::watch_forks(); }
  bool is_inherited() const {
    return generation_ != forked_detail::generation.load(std::memory_order_relaxed);
  }

 private:
  const unsigned generation_ = forked_detail::generation.load(std::memory_order_relaxed);
};

}  // namespace tcpx_nixl
