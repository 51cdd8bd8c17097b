#include "raw_setup.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "failure.h"
#include "topo/interfaces.h"

namespace tcpx::tool {
namespace {

// What a connection says first: the token and which connection it is.
struct Hello {
  RawToken token;
  uint32_t index;  // big-endian
};
static_assert(sizeof(Hello) == 36);

constexpr size_t kMaxPending = 64;  // connections that have not said hello yet

bool equal_in_constant_time(const RawToken& a, const RawToken& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress to_socket_address(const wire::Address& address) {
  SocketAddress out;
  if (is_v4(address)) {
    auto* four = reinterpret_cast<sockaddr_in*>(&out.storage);
    four->sin_family = AF_INET;
    four->sin_port = htons(address.port);
    std::memcpy(&four->sin_addr, address.ip.data() + 12, 4);
    out.length = sizeof *four;
  } else {
    auto* six = reinterpret_cast<sockaddr_in6*>(&out.storage);
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(address.port);
    std::memcpy(&six->sin6_addr, address.ip.data(), 16);
    out.length = sizeof *six;
  }
  return out;
}

Fd make_socket(const wire::Address& address) {
  const int family = is_v4(address) ? AF_INET : AF_INET6;
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail_errno(kExitEnvironment, "raw: socket", errno);
  return fd;
}

void set_nodelay(int fd) {
  const int on = 1;
  if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
    fail_errno(kExitEnvironment, "raw: TCP_NODELAY", errno);
}

int poll_milliseconds(Nanos deadline) {
  const Nanos left = deadline - now_ns();
  return left <= 0 ? 0 : static_cast<int>(std::min<Nanos>(left / kMilli + 1, 1000));
}

// Sets the address's port to the one it got.
Fd listen_on(wire::Address* at) {
  Fd fd = make_socket(*at);
  SocketAddress address = to_socket_address(*at);
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.get(), address.get(), address.length) != 0 || listen(fd.get(), 64) != 0)
    fail_errno(kExitFailed, "raw: listen on " + to_string(*at), errno);
  getsockname(fd.get(), address.get(), &address.length);
  at->port = ntohs(is_v4(*at) ? reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port
                              : reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port);
  return fd;
}

// Waits for `events`; false when the deadline has passed.
bool wait_for(int fd, short events, Nanos deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    if (poll(&entry, 1, poll_milliseconds(deadline)) > 0) return true;
    if (now_ns() >= deadline) return false;
  }
}

void make_blocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0)
    fail_errno(kExitEnvironment, "raw: fcntl", errno);
}

Fd connect_one(const std::string& endpoint, Nanos deadline) {
  const std::string what = "raw: connect to " + endpoint;
  wire::Address to;
  if (Status s = parse_endpoint(endpoint, &to); !s)
    throw Failure(kExitFailed, what + ": " + s.text());
  Fd fd = make_socket(to);
  SocketAddress address = to_socket_address(to);
  if (connect(fd.get(), address.get(), address.length) != 0) {
    if (errno != EINPROGRESS) fail_errno(kExitFailed, what, errno);
    if (!wait_for(fd.get(), POLLOUT, deadline)) fail_errno(kExitFailed, what, ETIMEDOUT);
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) fail_errno(kExitFailed, what, error);
  }
  set_nodelay(fd.get());
  return fd;
}

// Sockets that have connected and may still prove who they are.
class Arrivals {
 public:
  Arrivals(const RawToken& token, size_t connections) : token_(token), accepted_(connections) {}

  bool complete() const {
    return std::all_of(accepted_.begin(), accepted_.end(), [](auto& fd) { return bool(fd); });
  }
  std::vector<Fd> take() { return std::move(accepted_); }

  void poll_once(const std::vector<Fd>& listeners, Nanos deadline) {
    std::vector<pollfd> entries;
    for (auto& listener : listeners) entries.push_back({listener.get(), POLLIN, 0});
    for (auto& pending : pending_) entries.push_back({pending.fd.get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), poll_milliseconds(deadline)) <= 0) return;
    for (size_t i = pending_.size(); i-- > 0;)
      if (entries[listeners.size() + i].revents != 0 && !read_hello(pending_[i]))
        pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
    for (size_t i = 0; i < listeners.size(); ++i)
      if (entries[i].revents != 0) take_in(listeners[i].get());
  }

 private:
  struct Pending {
    Fd fd;
    Hello hello;
    size_t have = 0;
  };

  void take_in(int listener) {
    Fd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) return;
    if (pending_.size() >= kMaxPending) pending_.erase(pending_.begin());  // the oldest gives way
    pending_.push_back({std::move(fd), {}, 0});
  }

  // False: this one is done with, accepted or not.
  bool read_hello(Pending& from) {
    const ssize_t n = recv(from.fd.get(), reinterpret_cast<uint8_t*>(&from.hello) + from.have,
                           sizeof(Hello) - from.have, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    from.have += n;
    if (from.have < sizeof(Hello)) return true;
    const uint32_t index = ntohl(from.hello.index);
    if (!equal_in_constant_time(from.hello.token, token_) || index >= accepted_.size() ||
        accepted_[index])
      return false;
    set_nodelay(from.fd.get());
    make_blocking(from.fd.get());
    accepted_[index] = std::move(from.fd);
    return false;
  }

  const RawToken& token_;
  std::vector<Fd> accepted_;
  std::vector<Pending> pending_;
};

}  // namespace

std::vector<wire::Address> interface_addresses(const std::string& names, bool prefer_v6) {
  std::vector<LocalAddress> all;
  if (Status s = list_local_addresses(&all); !s) throw Failure(kExitEnvironment, s.text());
  std::vector<wire::Address> out;
  std::istringstream split(names);
  for (std::string name; std::getline(split, name, ',');) {
    const LocalAddress* best = nullptr;
    for (auto& local : all) {
      if (local.interface != name || (local.link_local && !is_v4(local.address))) continue;
      const bool preferred = is_v4(local.address) != prefer_v6;
      if (best == nullptr || (preferred && is_v4(best->address) == prefer_v6)) best = &local;
    }
    if (best != nullptr) out.push_back(best->address);
  }
  return out;
}

RawListener::RawListener(const std::vector<wire::Address>& addresses, uint16_t port) {
  if (getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size()))
    fail_errno(kExitEnvironment, "raw: getrandom", errno);
  for (wire::Address address : addresses) {
    address.port = port;
    sockets_.push_back(listen_on(&address));
    endpoints_.push_back(to_string(address));
  }
}

std::vector<Fd> RawListener::accept(size_t connections, Nanos deadline) {
  Arrivals arrivals(token_, connections);
  while (!arrivals.complete()) {
    if (now_ns() >= deadline)
      throw Failure(kExitFailed, "raw: the client's connections did not arrive in time");
    arrivals.poll_once(sockets_, deadline);
  }
  return arrivals.take();
}

std::vector<Fd> raw_connect(const std::vector<std::string>& endpoints, const RawToken& token,
                            size_t connections, Nanos deadline) {
  if (endpoints.empty()) throw Failure(kExitFailed, "raw: the server named no address");
  std::vector<Fd> out;
  for (size_t i = 0; i < connections; ++i) {
    Fd fd = connect_one(endpoints[i % endpoints.size()], deadline);
    const Hello hello{token, htonl(static_cast<uint32_t>(i))};
    if (send(fd.get(), &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
      fail_errno(kExitFailed, "raw: hello", errno);
    make_blocking(fd.get());
    out.push_back(std::move(fd));
  }
  return out;
}

}  // namespace tcpx::tool
