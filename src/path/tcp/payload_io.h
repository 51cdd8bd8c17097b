// The system calls that touch user memory.
//
// Under ThreadSanitizer they bypass its interceptors: the bytes are the application's, two peers
// may write them at once, and what orders an access after a transfer often is a message through
// another process, which the tool cannot see. That nothing lands late is shown by content checks
// (tests/fault/fence_test.cc), not by it. Everything of our own stays under its eyes.
#pragma once

#include <sys/socket.h>

#if defined(__SANITIZE_THREAD__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tcpx {

inline ssize_t send_payload(int fd, const msghdr* message) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
#if defined(__SANITIZE_THREAD__)
  return syscall(SYS_sendmsg, fd, message, kFlags);
#else
  return sendmsg(fd, message, kFlags);
#endif
}

inline ssize_t receive_payload(int fd, msghdr* message) {
#if defined(__SANITIZE_THREAD__)
  return syscall(SYS_recvmsg, fd, message, MSG_DONTWAIT);
#else
  return recvmsg(fd, message, MSG_DONTWAIT);
#endif
}

// Receives and drops.
inline ssize_t discard_payload(int fd, size_t bytes) {
  constexpr int kFlags = MSG_DONTWAIT | MSG_TRUNC;
#if defined(__SANITIZE_THREAD__)
  return syscall(SYS_recvfrom, fd, nullptr, bytes, kFlags, nullptr, nullptr);
#else
  return recv(fd, nullptr, bytes, kFlags);
#endif
}

}  // namespace tcpx
