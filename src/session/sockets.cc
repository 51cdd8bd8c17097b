#include "session/sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "base/units.h"

namespace tcpx {

namespace {

// As many as the kernel allows (net.core.somaxconn): with the queue full, clients wait a second for
// their next SYN.
constexpr int kBacklog = 4096;

// IPv4 goes out as AF_INET: v4-mapped sockets would need IPv6 to be enabled.
socklen_t to_sockaddr(const wire::Address& address, sockaddr_storage* out) {
  *out = {};
  if (is_v4(address)) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(out);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(address.port);
    memcpy(&v4->sin_addr, address.ip.data() + 12, 4);
    return sizeof *v4;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(out);
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(address.port);
  memcpy(&v6->sin6_addr, address.ip.data(), 16);
  return sizeof *v6;
}

Status open_socket(const wire::Address& address, Fd* out) {
  int family = is_v4(address) ? AF_INET : AF_INET6;
  Fd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Status::system(errno, TCPX_BLAST_LANE, "cannot open a socket");
  int one = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  *out = std::move(fd);
  return {};
}

}  // namespace

wire::Address address_of(const sockaddr_storage& storage) {
  wire::Address out;
  if (storage.ss_family == AF_INET) {
    auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    out.ip[10] = out.ip[11] = 0xff;
    memcpy(out.ip.data() + 12, &v4->sin_addr, 4);
    out.port = ntohs(v4->sin_port);
  } else if (storage.ss_family == AF_INET6) {
    auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    memcpy(out.ip.data(), &v6->sin6_addr, 16);
    out.port = ntohs(v6->sin6_port);
  }
  return out;
}

wire::Address local_address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return address_of(storage);
}

wire::Address remote_address_of(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return {};
  return address_of(storage);
}

Status parse_port_range(const std::string& text, PortRange* out) {
  size_t dash = text.find('-');
  uint64_t first = 0, last = 0;
  Status status = parse_count(text.substr(0, dash), &first);
  if (status)
    status = dash == std::string::npos ? parse_count(text, &last)
                                       : parse_count(text.substr(dash + 1), &last);
  if (!status || first > last || last > 65535 || (first == 0 && last != 0))
    return bad_call(TCPX_BAD_CONFIG,
                    strf("port_range \"{}\": use 0 (any), a port like 20000, or a range "
                         "like 20000-20099",
                         text));
  *out = {static_cast<uint16_t>(first), static_cast<uint16_t>(last)};
  return {};
}

Status open_listener(const wire::Address& address, PortRange ports, Fd* out, wire::Address* bound) {
  int err = 0;
  for (uint32_t port = ports.first; port <= ports.last; ++port) {
    Fd fd;
    if (Status status = open_socket(address, &fd); !status) return status;
    int one = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (!is_v4(address)) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    wire::Address with_port = address;
    with_port.port = static_cast<uint16_t>(port);
    sockaddr_storage storage;
    socklen_t length = to_sockaddr(with_port, &storage);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) == 0 &&
        listen(fd.get(), kBacklog) == 0) {
      *bound = with_port;
      bound->port = local_address_of(fd.get()).port;
      *out = std::move(fd);
      return {};
    }
    err = errno;
    if (err != EADDRINUSE) break;
  }
  std::string where = ip_to_string(address);
  if (err == EADDRINUSE)
    return Status(TCPX_BAD_CONFIG, TCPX_BLAST_ENGINE,
                  strf("every port of port_range {}-{} is in use on {}; widen the range",
                       ports.first, ports.last, where));
  return Status::system(err, TCPX_BLAST_ENGINE,
                        strf("cannot listen on {} port {}", where, ports.first));
}

Status start_connect(const wire::Address& remote, const wire::Address* local, Fd* out) {
  Fd fd;
  if (Status status = open_socket(remote, &fd); !status) return status;
  sockaddr_storage storage;
  int one = 1;
  // Its port stays with the kernel for a minute after it is closed. Marked so, it may be a
  // listener's meanwhile: where many sessions come and go no other one may be left.
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (local != nullptr) {
    setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    wire::Address from = *local;
    from.port = 0;
    socklen_t length = to_sockaddr(from, &storage);
    if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0)
      return Status::system(errno, TCPX_BLAST_LANE,
                            strf("cannot send from {}", ip_to_string(from)));
  }
  socklen_t length = to_sockaddr(remote, &storage);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 && errno != EINPROGRESS)
    return Status::system(errno, TCPX_BLAST_LANE, strf("connect {}", to_string(remote)));
  *out = std::move(fd);
  return {};
}

}  // namespace tcpx
