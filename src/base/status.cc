#include "base/status.h"

#include <cstring>

namespace tcpx {

Status Status::system(int err, tcpx_blast blast, std::string what) {
  char buffer[128];
  what += ": ";
  what += strerror_r(err, buffer, sizeof buffer);
  return Status(TCPX_SYSTEM, blast, std::move(what));
}

std::string Status::to_string() const {
  std::string out = code_name(code_);
  if (!text_.empty()) out += ": " + text_;
  return out;
}

const char* code_name(tcpx_code code) {
  switch (code) {
    case TCPX_OK: return "ok";
    case TCPX_IN_PROGRESS: return "in progress";
    case TCPX_INVALID_ARGUMENT: return "invalid argument";
    case TCPX_NOT_FOUND: return "not found";
    case TCPX_OUT_OF_RANGE: return "out of range";
    case TCPX_ACCESS_DENIED: return "access denied";
    case TCPX_STALE_REGION: return "stale region";
    case TCPX_AUTH_FAILED: return "authentication failed";
    case TCPX_PROTOCOL_ERROR: return "protocol error";
    case TCPX_VERSION_MISMATCH: return "version mismatch";
    case TCPX_CONNECT_FAILED: return "connect failed";
    case TCPX_PEER_DISCONNECTED: return "peer disconnected";
    case TCPX_PEER_CLOSED: return "peer closed";
    case TCPX_PEER_TIMEOUT: return "peer timeout";
    case TCPX_DEADLINE: return "deadline";
    case TCPX_CANCELLED: return "cancelled";
    case TCPX_REGION_REVOKED: return "region revoked";
    case TCPX_BAD_CONFIG: return "bad configuration";
    case TCPX_PATH_UNAVAILABLE: return "path unavailable";
    case TCPX_BUSY: return "busy";
    case TCPX_LIMIT: return "limit reached";
    case TCPX_NO_MEMORY: return "out of memory";
    case TCPX_SYSTEM: return "system error";
    case TCPX_BUFFER_TOO_SMALL: return "buffer too small";
    case TCPX_UNSUPPORTED: return "unsupported";
    case TCPX_SHUTDOWN: return "shutdown";
    case TCPX_INTERNAL: return "internal error";
    case TCPX_TAMPERED: return "tampered";
    case TCPX_MEMORY_GONE: return "memory gone";
    case TCPX_COPY_FAILED: return "copy failed";
  }
  return "unknown code";
}

}  // namespace tcpx
