#include "path/net/connect_reaper.h"

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/wait.h"

namespace tcpx::net {
namespace {

constexpr Nanos kBetweenPolls = 10 * kMilli;
// Some plugins' connects end only with success (aws-ofi-nccl), and there may be nobody to accept.
constexpr Nanos kReapPatience = 60 * kSecond;
constexpr Nanos kExitPatience = 200 * kMilli;

struct Pending {
  std::shared_ptr<Plugin> plugin;
  int device;
  std::unique_ptr<wire::NetHandle> handle;
  Nanos give_up;
};

// One thread while there is something to do. Never destroyed: it may outlive every engine.
struct Reaper {
  std::mutex mu;
  std::condition_variable changed;
  std::vector<Pending> pending;
  bool running = false;
  bool exiting = false;
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

// Not asked again. The plugin may still use its handle, so that is left to it.
bool given_up(Pending& entry) {
  if (now_ns() < entry.give_up) return false;
  (void)entry.handle.release();
  return true;
}

void run() {
  Reaper& all = reaper();
  std::unique_lock lock(all.mu);
  while (!all.pending.empty() && !all.exiting) {
    std::vector<Pending> work;
    work.swap(all.pending);
    lock.unlock();
    std::erase_if(work, ended);
    std::erase_if(work, given_up);
    lock.lock();
    for (Pending& entry : work) all.pending.push_back(std::move(entry));
    if (!all.pending.empty())
      wait_until(all.changed, lock, now_ns() + kBetweenPolls, [&] { return all.exiting; });
  }
  all.running = false;
  all.changed.notify_all();
}

// At exit plugins tear down what a connect uses: the thread must not be in one then.
void stop_at_exit() {
  Reaper& all = reaper();
  std::unique_lock lock(all.mu);
  all.exiting = true;
  all.changed.notify_all();
  wait_until(all.changed, lock, now_ns() + kExitPatience, [&] { return !all.running; });
}

}  // namespace

void reap_connect(std::shared_ptr<Plugin> plugin, int device,
                  std::unique_ptr<wire::NetHandle> handle) {
  Reaper& all = reaper();
  // After the plugin was loaded: so before what it has registered for the exit itself.
  static const bool registered = std::atexit(stop_at_exit) == 0;
  (void)registered;
  std::lock_guard lock(all.mu);
  all.pending.push_back({std::move(plugin), device, std::move(handle), now_ns() + kReapPatience});
  if (all.running || all.exiting) return;
  all.running = true;
  std::thread(run).detach();
}

}  // namespace tcpx::net
