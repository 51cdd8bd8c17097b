// What a carrier of the net path is made with.
#pragma once

#include <array>
#include <memory>

#include "config/cpu_list.h"
#include "memory/mover.h"
#include "path/loop.h"
#include "path/net/plugin.h"
#include "wire/mac.h"

namespace tcpx::net {

struct NetCarrierSettings {
  std::shared_ptr<Plugin> plugin;
  const Loop* loop = nullptr;  // the lane's
  Mover* mover = nullptr;      // of that loop
  int memory_type = nccl::kPtrHost;
  int device = 0;
  uint32_t lane = 0;
  std::array<uint8_t, wire::kDigestBytes> session_key{};
  uint64_t request_bytes = 512u << 10;
  uint32_t send_window = 12;
  uint32_t receive_window = nccl::kMaxRequests;
  Nanos setup_deadline = kNever;
  CpuSet cpus;  // of the lane's thread; none: anywhere
};

}  // namespace tcpx::net
