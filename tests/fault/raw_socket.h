// Plain blocking sockets with a deadline on every call: what a stranger holds.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "../support/env.h"
#include "base/fd.h"

namespace tcpx::test {

inline sockaddr_in loopback_address(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

class RawSocket {
 public:
  RawSocket() = default;
  explicit RawSocket(Fd fd) : fd_(std::move(fd)) { no_delay(); }
  explicit RawSocket(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback_address(port);
    if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("raw connect failed");
    no_delay();
  }

  // False once the other side has closed.
  bool send(std::span<const uint8_t> bytes, Ms limit = patience(3'000)) {
    auto end = Clock::now() + limit;
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        bytes = bytes.subspan(static_cast<size_t>(n));
      } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (!ready(POLLOUT, end)) return false;
      } else {
        return false;
      }
    }
    return true;
  }
  bool send(std::string_view text) {
    return send({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  }
  // True if all of `out` came; false if the other side closed or was silent too long.
  bool receive(std::span<uint8_t> out, Ms limit = patience(3'000)) {
    auto end = Clock::now() + limit;
    while (!out.empty()) {
      ssize_t n = ::recv(fd_.get(), out.data(), out.size(), MSG_DONTWAIT);
      if (n > 0) {
        out = out.subspan(static_cast<size_t>(n));
      } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (!ready(POLLIN, end)) return false;
      } else {
        return false;
      }
    }
    return true;
  }
  // Whether the other side closes within the limit; what it sends until then is thrown away.
  bool closes(Ms limit) {
    auto end = Clock::now() + limit;
    uint8_t scrap[4096];
    for (;;) {
      ssize_t n = ::recv(fd_.get(), scrap, sizeof scrap, MSG_DONTWAIT);
      if (n == 0) return true;
      if (n < 0 && errno != EAGAIN && errno != EINTR) return true;
      if (n < 0 && !ready(POLLIN, end)) return false;
    }
  }
  // How many bytes arrive until the other side closes or falls silent.
  size_t drain(Ms limit) {
    auto end = Clock::now() + limit;
    size_t total = 0;
    uint8_t scrap[4096];
    for (;;) {
      ssize_t n = ::recv(fd_.get(), scrap, sizeof scrap, MSG_DONTWAIT);
      if (n > 0)
        total += static_cast<size_t>(n);
      else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        return total;
      else if (!ready(POLLIN, end))
        return total;
    }
  }
  void close() { fd_.reset(); }
  int fd() const { return fd_.get(); }

 private:
  bool ready(short what, Clock::time_point end) {
    auto left = std::chrono::duration_cast<Ms>(end - Clock::now()).count();
    pollfd waiter{fd_.get(), what, 0};
    return left > 0 && ::poll(&waiter, 1, static_cast<int>(left)) > 0;
  }
  void no_delay() {
    int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  Fd fd_;
};

// A server that does only what the test tells it.
class RawListener {
 public:
  RawListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback_address(0);
    socklen_t length = sizeof address;
    if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::listen(fd_.get(), 64) != 0 ||
        ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("raw listen failed");
    port_ = ntohs(address.sin_port);
  }
  uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  bool waiting(Ms limit) {
    pollfd waiter{fd_.get(), POLLIN, 0};
    return ::poll(&waiter, 1, static_cast<int>(limit.count())) > 0;
  }
  RawSocket accept(Ms limit = patience(5'000)) {
    if (!waiting(limit)) throw std::runtime_error("nobody connected to the raw listener");
    return RawSocket(Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  void close() { fd_.reset(); }

 private:
  Fd fd_;
  uint16_t port_ = 0;
};

}  // namespace tcpx::test
