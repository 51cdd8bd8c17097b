// Which thread is in an exclusive section: what everything that lives in one can check.
//
// Checked where the build says so (TCPX_CHECKS: presets dev, asan, tsan): a thread that is not
// inside ends the process there and then, before it has touched what another one is in the middle
// of.
#pragma once

#include <atomic>

namespace tcpx {

class Inside {
 public:
#if defined(TCPX_CHECKS)
  void enter() {
    who_.store(me(), std::memory_order_relaxed);
  }
  void leave() {
    who_.store(nullptr, std::memory_order_relaxed);
  }
  void check() const {
    if (who_.load(std::memory_order_relaxed) != me()) __builtin_trap();
  }

 private:
  static const void* me() {
    static thread_local const char here = 0;
    return &here;
  }
  std::atomic<const void*> who_{nullptr};
#else
  void enter() {}
  void leave() {}
  void check() const {}
#endif
};

}  // namespace tcpx
