// The net path of an engine: which plugin, which of its devices, and carriers beside the streams of
// lanes.
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
#include "path/path.h"

namespace tcpx::net {

class NetPath final : public Path {
 public:
  static PathProbe probe(const EngineOptions& options, const Log& log);

  LaneTraits traits() const override;
  bool offer(const PathPeer&) const override { return true; }
  // Devices take turns.
  std::unique_ptr<Lane> make_lane(LaneParts parts, Loop& loop, LaneSink& sink) const override;
  // File, version, devices, how memory is treated, effective settings.
  std::string describe() const override;

 private:
  NetPath() = default;
  // Loads the plugin and chooses devices. TCPX_PATH_UNAVAILABLE says why there is no net path.
  static Status create(const EngineOptions& options, const Log& log, std::unique_ptr<Path>* out);
  std::unique_ptr<Carrier> make_carrier(uint32_t lane, std::span<const uint8_t> session_key,
                                        const Loop& loop) const;
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
