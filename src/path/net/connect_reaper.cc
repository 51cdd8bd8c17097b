#include "path/net/connect_reaper.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace tcpx::net {
namespace {

struct Pending {
  std::shared_ptr<Plugin> plugin;
  int device;
  std::unique_ptr<wire::NetHandle> handle;
};

// One thread while there is something to do. Never destroyed: it may outlive every engine.
struct Reaper {
  std::mutex mu;
  std::vector<Pending> pending;
  bool running = false;
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

void run() {
  Reaper& all = reaper();
  for (;;) {
    std::vector<Pending> work;
    {
      std::lock_guard lock(all.mu);
      work.swap(all.pending);
    }
    std::erase_if(work, ended);
    {
      std::lock_guard lock(all.mu);
      for (Pending& entry : work) all.pending.push_back(std::move(entry));
      if (all.pending.empty()) {
        all.running = false;
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

void reap_connect(std::shared_ptr<Plugin> plugin, int device,
                  std::unique_ptr<wire::NetHandle> handle) {
  Reaper& all = reaper();
  std::lock_guard lock(all.mu);
  all.pending.push_back({std::move(plugin), device, std::move(handle)});
  if (all.running) return;
  all.running = true;
  std::thread(run).detach();
}

}  // namespace tcpx::net
