// Sockets for listening and connecting: addresses in and out of sockaddr, bind, port ranges.
#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "topo/interfaces.h"
#include "wire/handshake.h"

namespace tcpx {

wire::Address address_of(const sockaddr_storage& storage);
wire::Address local_address_of(int fd);
wire::Address remote_address_of(int fd);

struct PortRange {
  uint16_t first = 0;  // 0: any port
  uint16_t last = 0;
};
Status parse_port_range(const std::string& text, PortRange* out);

// Listens on the first free port of the range; *bound is address with the port it got.
Status open_listener(const wire::Address& address, PortRange ports, Fd* out, wire::Address* bound);

// Starts a non-blocking connect, from `local` if it is not null. An error here is final for this
// address; otherwise the handshake sees how it ends.
Status start_connect(const wire::Address& remote, const wire::Address* local, Fd* out);

}  // namespace tcpx
