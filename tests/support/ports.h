// Ports for tests that have to name one, while others of their kind run beside them.
#pragma once

#include <unistd.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include <tcpx/tcpx.hpp>

#include "base/text.h"
#include "wire/blobs.h"

namespace tcpx::test {

// A range that no other test process uses: those that run together have pids near each other. It
// ends below the ports that the system gives away.
struct OwnPorts {
  int first = 23'000 + ::getpid() % 600 * 16;
  int last = first + 15;

  std::string text() const { return strf("{}-{}", first, last); }
};

// Where the engine with this connection info listens; `key` is its auth_key if it has one.
inline uint16_t listening_port(const Bytes& info, std::string_view key = {}) {
  wire::ConnectionInfo decoded;
  Status status = wire::decode_connection_info(
      info, {reinterpret_cast<const uint8_t*>(key.data()), key.size()}, &decoded);
  if (!status) throw std::runtime_error(status.to_string());
  return decoded.addresses.at(0).port;
}

}  // namespace tcpx::test
