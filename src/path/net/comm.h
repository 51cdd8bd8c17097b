// What both ends of a comm have: settings, and how well their windows are used.
//
// What both know without saying it: the payload of a frame is cut into requests of request_bytes,
// the last one shorter, and requests match in the order in which they are posted.
#pragma once

#include <atomic>
#include <memory>

#include "memory/mover.h"
#include "path/net/plugin.h"

namespace tcpx::net {

// How full the window is at each test(), also when too little was handed over to fill it; read by
// any thread.
struct Occupancy {
  std::atomic<uint64_t> samples{0};
  std::atomic<uint64_t> live{0};
  uint32_t window = 0;

  void sample(size_t requests) {
    samples.fetch_add(1, std::memory_order_relaxed);
    live.fetch_add(requests, std::memory_order_relaxed);
  }
  // 0..1; negative: nothing was sampled.
  double average() const {
    uint64_t count = samples.load(std::memory_order_relaxed);
    if (count == 0) return -1;
    return static_cast<double>(live.load(std::memory_order_relaxed)) /
           (static_cast<double>(count) * window);
  }
};

struct CommSettings {
  std::shared_ptr<Plugin> plugin;
  Mover* mover = nullptr;  // of the lane's loop
  int memory_type = nccl::kPtrHost;
  uint32_t window = nccl::kMaxRequests;
};

// Why a lane has no comms.
Status setup_error(std::string text);
// A call on a comm that failed, with the plugin's last warning. A comm breaks with the peer, so
// whoever gives a path up for that does not know which of the two it was: *broke.
Status plugin_error(const char* call, nccl::Result result, bool* broke);

}  // namespace tcpx::net
