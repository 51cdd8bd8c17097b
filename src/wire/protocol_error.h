// The error of every decoder: the bytes are what no correct peer sends.
#pragma once

#include "base/status.h"
#include "base/text.h"

namespace tcpx::wire {

// Out of line and cold: formatting stays off the path that every frame takes.
template <class... Args>
[[gnu::cold, gnu::noinline]] Status bad(fmt::format_string<Args...> format, const Args&... args) {
  return lane_error(TCPX_PROTOCOL_ERROR, strf(format, args...));
}

}  // namespace tcpx::wire
