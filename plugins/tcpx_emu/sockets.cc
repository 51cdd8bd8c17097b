#include "sockets.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>

#include <cerrno>

namespace tcpx_emu {

namespace {

// Not through libc: ThreadSanitizer would take what a caller's memory gets for an access of this
// thread, and it does not see the messages that order it with the caller's own.
ssize_t payload_call(long call, int fd, msghdr* message, int flags) {
  return syscall(call, fd, message, flags);
}

constexpr int kBacklog = 64;

Fd open_socket(int family) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int one = 1;
  if (fd) ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  // Ports of connections that are closed stay taken for a minute, but not for listeners.
  if (fd) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  return fd;
}

Fd failed(int error) {
  errno = error;
  return {};
}

// One attempt. An empty Fd with errno ECONNREFUSED: nobody listens there yet.
Fd connect_once(const SocketAddress& remote, const SocketAddress& local, const Wait& wait,
                Nanos deadline) {
  Fd fd = open_socket(remote.any.sa_family);
  if (!fd) return fd;
  int one = 1;  // the port is chosen by connect(), which may share it with connections to elsewhere
  ::setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (local.any.sa_family == remote.any.sa_family &&
      ::bind(fd.get(), &local.any, length_of(local)) != 0)
    return failed(errno);
  if (::connect(fd.get(), &remote.any, length_of(remote)) == 0) return fd;
  if (errno != EINPROGRESS) return failed(errno);
  if (!wait.for_events(fd.get(), POLLOUT, deadline)) return failed(ETIMEDOUT);
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  return error == 0 ? std::move(fd) : failed(error);
}

ssize_t result_of(ssize_t n) {
  if (n > 0) return n;
  if (n == 0) {
    errno = 0;
    return -1;
  }
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

}  // namespace

socklen_t length_of(const SocketAddress& address) {
  return address.any.sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

std::string to_string(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.any.sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &address.v6.sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(address.v6.sin6_port));
  }
  ::inet_ntop(AF_INET, &address.v4.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(address.v4.sin_port));
}

Wait::Wait() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void Wait::call_off() {
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = ::write(event_.get(), &one, sizeof one);
}

bool Wait::called_off() const {
  pollfd entry{event_.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

bool Wait::for_events(int fd, short events, Nanos deadline) const {
  for (;;) {
    Nanos left = deadline - now_ns();
    if (left <= 0) return false;
    pollfd entries[2] = {{event_.get(), POLLIN, 0}, {fd, events, 0}};
    timespec limit{left / kSecond, left % kSecond};
    int n = ::ppoll(entries, 2, &limit, nullptr);
    if (n < 0 && errno != EINTR) return false;
    if (n <= 0) continue;
    if (entries[0].revents != 0) return false;
    return true;
  }
}

bool Wait::sleep(Nanos time) const {
  Nanos end = time == kForever ? kForever : now_ns() + time;
  for (;;) {
    Nanos left = end - now_ns();
    if (left <= 0) return true;
    pollfd entry{event_.get(), POLLIN, 0};
    timespec limit{left / kSecond, left % kSecond};
    if (::ppoll(&entry, 1, &limit, nullptr) > 0) return false;
  }
}

Fd listen_on(const SocketAddress& address, SocketAddress* bound) {
  Fd fd = open_socket(address.any.sa_family);
  socklen_t length = sizeof *bound;
  if (fd &&
      (::bind(fd.get(), &address.any, length_of(address)) != 0 ||
       ::listen(fd.get(), kBacklog) != 0 || ::getsockname(fd.get(), &bound->any, &length) != 0))
    return failed(errno);
  return fd;
}

Fd accept_one(int listener, const Wait& wait, Nanos deadline) {
  for (;;) {
    Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      int one = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      return fd;
    }
    bool again = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
    if (!again) return fd;
    if (!wait.for_events(listener, POLLIN, deadline)) return failed(ETIMEDOUT);
  }
}

Fd connect_to(const SocketAddress& remote, const SocketAddress& local, const Wait& wait,
              Nanos deadline, bool insist) {
  SocketAddress from = local;
  if (from.any.sa_family == AF_INET) from.v4.sin_port = 0;
  if (from.any.sa_family == AF_INET6) from.v6.sin6_port = 0;
  for (;;) {
    Fd fd = connect_once(remote, from, wait, deadline);
    int error = errno;
    if (fd || error != ECONNREFUSED || !insist || now_ns() >= deadline) return fd;
    if (!wait.sleep(kMilli)) return failed(ECANCELED);
  }
}

bool read_all(int fd, void* bytes, size_t size, const Wait& wait, Nanos deadline) {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    ssize_t n = read_some(fd, at, size);
    if (n < 0) return false;
    if (n == 0 && !wait.for_events(fd, POLLIN, deadline)) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int fd, const void* bytes, size_t size, const Wait& wait, Nanos deadline) {
  auto* at = static_cast<const char*>(bytes);
  while (size > 0) {
    ssize_t n = write_some(fd, at, size);
    if (n < 0) return false;
    if (n == 0 && !wait.for_events(fd, POLLOUT, deadline)) return false;
    at += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

ssize_t read_some(int fd, void* bytes, size_t size) {
  return result_of(::recv(fd, bytes, size, MSG_DONTWAIT));
}

ssize_t write_some(int fd, const void* bytes, size_t size) {
  return result_of(::send(fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL));
}

ssize_t read_vector(int fd, iovec* iov, size_t count) {
  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = count;
  return result_of(payload_call(SYS_recvmsg, fd, &message, MSG_DONTWAIT));
}

ssize_t write_vector(int fd, iovec* iov, size_t count) {
  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = count;
  return result_of(payload_call(SYS_sendmsg, fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL));
}

bool at_end(int fd) {
  char byte;
  return result_of(::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK)) < 0;
}

}  // namespace tcpx_emu
