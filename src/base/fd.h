// A file descriptor that closes itself, and does not outlive a fork().
#pragma once

#include <unistd.h>

#include <utility>

#include "base/forked.h"

namespace tcpx {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) { descriptor_opened(fd_); }
  Fd(Fd&& other) noexcept : fd_(other.take()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) close_and_set(other.take());
    return *this;
  }
  ~Fd() { close_and_set(-1); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    close_and_set(fd);
    descriptor_opened(fd_);
  }

 private:
  int take() { return std::exchange(fd_, -1); }
  void close_and_set(int fd) {
    if (fd_ >= 0) {
      descriptor_closes(fd_);
      ::close(fd_);
    }
    fd_ = fd;
  }

  int fd_ = -1;
};

}  // namespace tcpx
