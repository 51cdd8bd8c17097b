// What this process holds, read from /proc: the evidence in leak tests.
#pragma once

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "env.h"

namespace tcpx::test {

inline std::vector<int> numeric_entries(const char* path) {
  std::vector<int> out;
  DIR* dir = ::opendir(path);
  if (dir == nullptr) return out;
  while (dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    int value = std::atoi(entry->d_name);
    if (value != ::dirfd(dir)) out.push_back(value);
  }
  ::closedir(dir);
  return out;
}

inline size_t open_fds() {
  return numeric_entries("/proc/self/fd").size();
}
// What this process takes of the cores meanwhile.
inline double busy_cores(std::chrono::milliseconds time) {
  auto now = [](clockid_t clock) {
    timespec value{};
    ::clock_gettime(clock, &value);
    return static_cast<double>(value.tv_sec) + static_cast<double>(value.tv_nsec) / 1e9;
  };
  const double cpu = now(CLOCK_PROCESS_CPUTIME_ID), from = now(CLOCK_MONOTONIC);
  std::this_thread::sleep_for(time);
  return (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (now(CLOCK_MONOTONIC) - from);
}
// A thread that spins takes a whole one.
inline constexpr double kFewCores = kSanitized ? 0.9 : 0.5;

inline size_t thread_count() {
  return numeric_entries("/proc/self/task").size();
}

inline uint64_t rss_bytes() {
  FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long long pages = 0, resident = 0;
  if (file != nullptr) {
    if (std::fscanf(file, "%llu %llu", &pages, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// Names what is behind each fd, for the message of a failed leak test.
inline std::string list_fds() {
  std::string out;
  for (int fd : numeric_entries("/proc/self/fd")) {
    char target[256];
    ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), target, sizeof target);
    if (n > 0) out += std::to_string(fd) + "=" + std::string(target, static_cast<size_t>(n)) + " ";
  }
  return out;
}

// ThreadSanitizer starts a thread of its own with the first one: not a leak of whoever starts that.
inline bool sanitizers_thread_runs() {
  static const bool once = [] {
    std::thread([] {}).join();
    return true;
  }();
  return once;
}

// fds and threads held now; later compared with what is held then.
class Holdings {
 public:
  const bool ready = sanitizers_thread_runs();
  size_t fds = open_fds();
  size_t threads = thread_count();

  // True once no more is held than at construction.
  bool restored(Ms limit = patience(5'000)) const {
    return eventually([&] { return open_fds() <= fds && thread_count() <= threads; }, limit);
  }
  std::string now() const {
    return "held before: " + std::to_string(fds) + " fds, " + std::to_string(threads) +
           " threads; now: " + std::to_string(open_fds()) + " fds, " +
           std::to_string(thread_count()) + " threads; " + list_fds();
  }
};

inline uint16_t port_of(const sockaddr_storage& address) {
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

// TCP sockets of this process that are connected, except listeners.
inline std::vector<int> connected_sockets() {
  std::vector<int> out;
  for (int fd : numeric_entries("/proc/self/fd")) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) out.push_back(fd);
  }
  return out;
}

// Those of them whose other end is that port.
inline std::vector<int> sockets_to(uint16_t port) {
  std::vector<int> out;
  for (int fd : connected_sockets()) {
    sockaddr_storage remote{};
    socklen_t length = sizeof remote;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&remote), &length) == 0 &&
        port_of(remote) == port)
      out.push_back(fd);
  }
  return out;
}

}  // namespace tcpx::test
