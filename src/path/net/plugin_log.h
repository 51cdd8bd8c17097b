// Where a plugin's log lines go. The ABI's logger has no user argument, and a plugin lives as long
// as the process, so this is one per process: lines go to the logs of all engines that use a
// plugin, at their own level, and the last warning is kept for error messages.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "path/net/nccl_net_abi.h"

namespace tcpx::net {

// The function to hand to init().
nccl::Logger plugin_logger();

// While it lives, `log` gets the plugin's lines.
class PluginLogTap {
 public:
  explicit PluginLogTap(const Log& log);
  ~PluginLogTap();
  PluginLogTap(const PluginLogTap&) = delete;
  PluginLogTap& operator=(const PluginLogTap&) = delete;

 private:
  int id_;
};

// The newest warning since then, with the one before it if that was another, or "": the newest one
// often says only that something failed.
std::string last_plugin_warning(Nanos since = 0);

}  // namespace tcpx::net
