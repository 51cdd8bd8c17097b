// The thread of a loop, from its start to its end.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace tcpx {

class LoopThread {
 public:
  Status start(std::function<void()> work);
  // Asks the thread to end (`wake` has it look) and waits for that; `last` then runs once. False:
  // it has not ended within `patience`, or `hangs` says that it will not; ask again. Several may
  // ask at once. Not from the thread itself.
  struct Ending {
    std::function<void()> wake;
    std::function<bool(Nanos)> hangs;  // at this time; null: it cannot
    std::function<void()> last;
  };
  bool stop(Nanos patience, const Ending& ending);

  bool stopping() const { return stopping_.load(std::memory_order_relaxed); }
  bool ended() const { return ended_.load(); }      // it does nothing any more
  bool stopped() const { return stopped_.load(); }  // and somebody has seen that
  // CPUs it may run on now, e.g. "0-3,8"; "" once it has ended.
  std::string cpus() const;

 private:
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> stopped_{false};
  std::mutex stop_mu_;  // one at a time stops it
  mutable Mutex end_mu_;
  pid_t id_ TCPX_GUARDED_BY(end_mu_) = 0;  // 0: it has not begun
  std::condition_variable ended_cv_;
  std::atomic<bool> ended_{false};  // set under end_mu_
};

}  // namespace tcpx
