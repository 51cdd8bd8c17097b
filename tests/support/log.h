// What engines under test have to say, for whoever looks for a cause.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <tcpx/tcpx.hpp>

namespace tcpx::test {

// TCPX_TEST_LOG=1 shows what engines have to say.
inline Engine::Log log_to_stderr() {
  if (std::getenv("TCPX_TEST_LOG") == nullptr) return {};
  return
      [](tcpx_log_level, const char* line) { std::fprintf(stderr, "[%d] %s\n", ::getpid(), line); };
}

}  // namespace tcpx::test
