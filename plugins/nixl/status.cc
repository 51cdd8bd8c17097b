#include "status.h"

namespace tcpx_nixl {

bool is_peer_lost(tcpx_code code) {
  switch (code) {
    case TCPX_CONNECT_FAILED:  // it was there when its connection info was made
    case TCPX_PEER_DISCONNECTED:
    case TCPX_PEER_CLOSED:
    case TCPX_PEER_TIMEOUT: return true;
    default: return false;
  }
}

nixl_status_t to_nixl(tcpx_code code) {
  if (is_peer_lost(code)) return NIXL_ERR_REMOTE_DISCONNECT;
  switch (code) {
    case TCPX_OK: return NIXL_SUCCESS;
    case TCPX_IN_PROGRESS: return NIXL_IN_PROG;
    case TCPX_INVALID_ARGUMENT:
    case TCPX_OUT_OF_RANGE:
    case TCPX_BAD_CONFIG: return NIXL_ERR_INVALID_PARAM;
    case TCPX_NOT_FOUND:
    case TCPX_STALE_REGION:
    case TCPX_MEMORY_GONE: return NIXL_ERR_NOT_FOUND;
    case TCPX_COPY_FAILED: return NIXL_ERR_BACKEND;
    case TCPX_ACCESS_DENIED:
    case TCPX_AUTH_FAILED:
    case TCPX_LIMIT: return NIXL_ERR_NOT_ALLOWED;
    case TCPX_VERSION_MISMATCH:
    case TCPX_TAMPERED: return NIXL_ERR_MISMATCH;
    case TCPX_CANCELLED:
    case TCPX_REGION_REVOKED: return NIXL_ERR_CANCELED;
    case TCPX_BUSY: return NIXL_ERR_REPOST_ACTIVE;
    case TCPX_PATH_UNAVAILABLE:
    case TCPX_UNSUPPORTED: return NIXL_ERR_NOT_SUPPORTED;
    default: return NIXL_ERR_BACKEND;
  }
}

}  // namespace tcpx_nixl
