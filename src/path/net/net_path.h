// The net path of an engine: which plugin, which of its devices, and carriers for lanes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "config/options.h"
#include "path/net/net_carrier.h"
#include "path/net/plugin_log.h"

namespace tcpx::net {

class NetPath {
 public:
  // Loads the plugin and chooses devices. TCPX_PATH_UNAVAILABLE says why there is no net path.
  static Status create(const EngineOptions& options, const Log& log, std::unique_ptr<NetPath>* out);

  // For lane `lane` of a session, in this loop; devices take turns.
  std::unique_ptr<Carrier> make_carrier(uint32_t lane, std::span<const uint8_t> session_key,
                                        const Loop& loop) const;
  // One line for the log: file, version, devices, how memory is treated, effective settings.
  std::string describe() const;
  uint64_t request_bytes() const { return request_bytes_; }

 private:
  NetPath() = default;
  Status choose_devices(const std::string& asked);
  Status bind_workers(const EngineOptions& options, const Log& log);
  const std::string& device_name(int device) const;

  std::optional<PluginLogTap> tap_;
  std::shared_ptr<Plugin> plugin_;
  std::vector<int> devices_;
  std::map<int, CpuSet> worker_cpus_;  // by device; without an entry its threads run anywhere
  int memory_type_ = nccl::kPtrHost;
  uint64_t request_bytes_ = 0;
  uint32_t send_window_ = 12;
  uint32_t receive_window_ = nccl::kMaxRequests;
  Nanos setup_timeout_ = 10 * kSecond;
};

}  // namespace tcpx::net
