// TCP sockets, and blocking steps on them that always end: at a deadline or when called off.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <utility>

#include "clock.h"

namespace tcpx_emu {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};
socklen_t length_of(const SocketAddress& address);
std::string to_string(const SocketAddress& address);

// One thread waits, another may call it off.
class Wait {
 public:
  Wait();
  void call_off();
  bool called_off() const;

  // False: too late, or called off.
  bool for_events(int fd, short events, Nanos deadline) const;
  // True: slept all of it. kForever ends only when called off.
  bool sleep(Nanos time) const;
  static constexpr Nanos kForever = INT64_MAX;

 private:
  Fd event_;
};

// All sockets are non-blocking, without Nagle's delay. On failure the Fd is empty and errno set.
Fd listen_on(const SocketAddress& address, SocketAddress* bound);
Fd accept_one(int listener, const Wait& wait, Nanos deadline);
// `insist`: tries again while nobody listens there. `local`: bind to its address if the family is
// the same.
Fd connect_to(const SocketAddress& remote, const SocketAddress& local, const Wait& wait,
              Nanos deadline, bool insist);
bool read_all(int fd, void* bytes, size_t size, const Wait& wait, Nanos deadline);
bool write_all(int fd, const void* bytes, size_t size, const Wait& wait, Nanos deadline);

// Non-blocking read or write: bytes moved, 0 when nothing can move now, -1 when the connection is
// at its end (errno 0) or broken.
ssize_t read_some(int fd, void* bytes, size_t size);
ssize_t write_some(int fd, const void* bytes, size_t size);
ssize_t read_vector(int fd, iovec* iov, size_t count);
ssize_t write_vector(int fd, iovec* iov, size_t count);
// Whether the peer has closed or reset the connection and all it sent has been read.
bool at_end(int fd);

}  // namespace tcpx_emu
