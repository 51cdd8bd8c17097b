#include "path/net/comm.h"

#include <utility>

#include "base/text.h"
#include "path/net/plugin_log.h"

namespace tcpx::net {

Status setup_error(std::string text) {
  return lane_error(TCPX_PATH_UNAVAILABLE, std::move(text));
}

Status plugin_error(const char* call, nccl::Result result, bool* broke) {
  *broke = true;
  std::string warning = last_plugin_warning();
  return lane_error(TCPX_PEER_DISCONNECTED,
                    strf("the net plugin's {}: {}{}{}", call, result_name(result),
                         warning.empty() ? "" : "; its last warning: ", warning));
}

}  // namespace tcpx::net
