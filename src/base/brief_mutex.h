// A mutex for sections that last less than a microsecond: whoever finds it taken tries again for a
// while before it sleeps. To be put to sleep and woken costs ten times the section (four lanes that
// began 1 MiB at the same time: the last one had its chunk after 12 us instead of 4).
#pragma once

#include <mutex>

#include "base/clock.h"
#include "base/mutex.h"

namespace tcpx {

class TCPX_LOCKABLE BriefMutex {
 public:
  void lock() TCPX_ACQUIRE() {
#if !defined(__SANITIZE_THREAD__)  // which learns the order of locks from those that wait
    for (int i = 0; i < kTries; ++i) {
      if (native_.try_lock()) return;
      pause_cpu();
    }
#endif
    native_.lock();
  }
  // Of who holds it.
  std::unique_lock<std::mutex> adopt() {
    return {native_, std::adopt_lock};
  }

 private:
  static constexpr int kTries = 100;  // a few microseconds
  std::mutex native_;
};

}  // namespace tcpx
