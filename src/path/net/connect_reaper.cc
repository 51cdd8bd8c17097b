#include "path/net/connect_reaper.h"

#include <condition_variable>
#include <cstdlib>
#include <list>
#include <thread>

#include "base/clock.h"
#include "base/forked.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "base/wait.h"

namespace tcpx::net {
namespace {

constexpr Nanos kBetweenPolls = 10 * kMilli;
// Some plugins' connects end only with success (aws-ofi-nccl), and there may be nobody to accept.
constexpr Nanos kReapPatience = 60 * kSecond;
constexpr Nanos kExitPatience = 200 * kMilli;
constexpr Nanos kHangPatience = 10 * kSecond;  // with one call

struct Pending {
  std::shared_ptr<Plugin> plugin;
  int device = 0;
  std::unique_ptr<wire::NetHandle> handle;
  Nanos give_up = 0;
};

// One thread while there is something to do; one more when that hangs in a plugin's call. Never
// destroyed: it may outlive every engine.
struct Reaper {
  Mutex mu;
  std::condition_variable changed;
  std::list<Pending> pending TCPX_GUARDED_BY(mu);
  uint64_t thread TCPX_GUARDED_BY(mu) = 0;  // the number of the one that works; 0: none
  uint64_t last_thread TCPX_GUARDED_BY(mu) = 0;
  Nanos in_call_since TCPX_GUARDED_BY(mu) = 0;  // 0: not in a plugin's call
  bool exiting TCPX_GUARDED_BY(mu) = false;
  const MadeHere made_here{};
};
Reaper& reaper() {
  static Reaper* const one = new Reaper;
  return *one;
}

bool ended(Pending& entry) {
  void* comm = nullptr;
  nccl::Result result = entry.plugin->calls().connect(entry.device, entry.handle->data(), &comm);
  if (comm != nullptr) entry.plugin->calls().close_send(comm);
  return comm != nullptr || result != nccl::kSuccess;
}

// Asks about one, outside the lock. False: this thread was given up meanwhile.
bool ask(Reaper& all, uint64_t number) TCPX_REQUIRES(all.mu) {
  std::list<Pending> one;
  one.splice(one.begin(), all.pending, all.pending.begin());
  Pending& entry = one.front();
  all.in_call_since = now_ns();
  all.mu.unlock();
  bool over = ended(entry);
  all.mu.lock();
  if (!over && now_ns() >= entry.give_up) {
    // Not asked again. The plugin may still use its handle, so that is left to it.
    (void)entry.handle.release();
    over = true;
  }
  if (!over) all.pending.splice(all.pending.end(), one);
  bool alone = all.thread == 0 && !all.pending.empty() && !all.exiting;
  if (alone) all.thread = number;  // who took over has finished and gone
  if (all.thread != number) return false;
  all.in_call_since = 0;
  return true;
}

void run(uint64_t number) {
  Reaper& all = reaper();
  MutexLock lock(all.mu);
  while (!all.pending.empty() && !all.exiting) {
    for (size_t left = all.pending.size(); left > 0 && !all.exiting; --left)
      if (!ask(all, number)) return;
    if (!all.pending.empty())
      wait_until(all.changed, lock, now_ns() + kBetweenPolls,
                 [&]() TCPX_REQUIRES(all.mu) { return all.exiting; });
  }
  all.thread = 0;
  all.changed.notify_all();
}

bool hangs_locked(const Reaper& all) TCPX_REQUIRES(all.mu) {
  return all.in_call_since != 0 && now_ns() - all.in_call_since > kHangPatience;
}

// At exit plugins tear down what a connect uses: the thread must not be in one then.
void stop_at_exit() {
  Reaper& all = reaper();
  if (all.made_here.is_inherited()) return;  // its thread is not here, and may hold the lock
  MutexLock lock(all.mu);
  all.exiting = true;
  all.changed.notify_all();
  wait_until(all.changed, lock, now_ns() + kExitPatience,
             [&]() TCPX_REQUIRES(all.mu) { return all.thread == 0; });
}

}  // namespace

void stop_reaping_at_exit() {
  (void)reaper();  // made here, so that reap_connect needs no memory for it
  std::atexit(stop_at_exit);
}

void reap_connect(std::shared_ptr<Plugin> plugin, int device,
                  std::unique_ptr<wire::NetHandle> handle) noexcept {
  std::list<Pending> one;
  if (!quietly([&] { one.emplace_back(); })) return (void)handle.release();  // still in use
  one.front() = {std::move(plugin), device, std::move(handle), now_ns() + kReapPatience};
  Reaper& all = reaper();
  MutexLock lock(all.mu);
  all.pending.splice(all.pending.end(), one);
  if (all.exiting || (all.thread != 0 && !hangs_locked(all))) return;
  all.thread = ++all.last_thread;
  all.in_call_since = 0;
  std::thread thread;
  if (start_thread(&thread, "a thread that ends connects",
                   [number = all.thread] { quietly([&] { run(number); }); }))
    thread.detach();
  else
    all.thread = 0;
}

}  // namespace tcpx::net
