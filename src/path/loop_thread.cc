#include "path/loop_thread.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/thread.h"
#include "base/wait.h"
#include "path/tuning.h"
#include "topo/thread_cpus.h"

namespace tcpx {

Status LoopThread::start(std::function<void()> work) {
  return start_thread(&thread_, "a progress thread", [this, work = std::move(work)] {
    // The end of a lease (path/lease.h) is 100 us away; the kernel would add 50 to that.
    prctl(PR_SET_TIMERSLACK, 1);
    {
      MutexLock lock(end_mu_);
      id_ = gettid();
    }
    work();
    MutexLock lock(end_mu_);
    ended_ = true;
    ended_cv_.notify_all();
  });
}

bool LoopThread::stop(Nanos patience, const Ending& ending) {
  std::unique_lock one_at_a_time(stop_mu_, std::defer_lock);
  if (patience == 0 ? !one_at_a_time.try_lock() : (one_at_a_time.lock(), false)) return false;
  if (stopped_.load()) return true;
  stopping_.store(true);
  ending.wake();
  {
    Nanos give_up = ending.hangs == nullptr ? kNever : deadline_after(now_ns(), patience);
    MutexLock lock(end_mu_);
    auto ended = [&] { return ended_.load() || !thread_.joinable(); };
    while (!ended()) {
      Nanos now = now_ns();
      if (now >= give_up || (ending.hangs != nullptr && ending.hangs(now))) return false;
      wait_until(ended_cv_, lock, std::min(give_up, now + tuning::kLookEvery), ended);
    }
  }
  if (thread_.joinable()) thread_.join();
  stopped_.store(true);
  ending.last();
  return true;
}

std::string LoopThread::cpus() const {
  MutexLock lock(end_mu_);
  if (id_ == 0 || ended_) return {};
  return format_cpus(topo::cpus_of_thread(id_));
}

}  // namespace tcpx
