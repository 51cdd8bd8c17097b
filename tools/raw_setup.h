// Getting the plain connections of the raw ceiling: who may connect is decided by a random token
// that both ends have agreed on over the authenticated channel.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "wire/handshake.h"

namespace tcpx::tool {

using RawToken = std::array<uint8_t, 32>;

// One address per named interface ("eth0,eth1"), IPv6 or IPv4 as preferred if it has both.
std::vector<wire::Address> interface_addresses(const std::string& names, bool prefer_v6);

class RawListener {
 public:
  // Listens on every address; port 0 is any. Makes a new token.
  RawListener(const std::vector<wire::Address>& addresses, uint16_t port);

  const RawToken& token() const { return token_; }
  const std::vector<std::string>& endpoints() const { return endpoints_; }  // "10.0.0.1:5"
  // Connections in the order of their index. Strangers are closed and do not count.
  std::vector<Fd> accept(size_t connections, Nanos deadline);

 private:
  RawToken token_;
  std::vector<Fd> sockets_;
  std::vector<std::string> endpoints_;
};

// Connection i goes to endpoint i modulo their number.
std::vector<Fd> raw_connect(const std::vector<std::string>& endpoints, const RawToken& token,
                            size_t connections, Nanos deadline);

}  // namespace tcpx::tool
