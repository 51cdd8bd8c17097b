#include "failure.h"

#include <cstring>

namespace tcpx::tool {

void fail_errno(ExitCode code, const std::string& what, int error) {
  char buffer[128];
  throw Failure(code, what + ": " + strerror_r(error, buffer, sizeof buffer));
}

}  // namespace tcpx::tool
