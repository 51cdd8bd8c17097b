// What a test does to a process of its own: the code that must not take the process with it runs in
// this very binary, started again as "X --child NAME".
#pragma once

#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <string>

#include "../support/env.h"
#include "../support/peer.h"

namespace tcpx::test {

using ChildBody = int (*)();

inline std::map<std::string, ChildBody>& children() {
  static std::map<std::string, ChildBody> all;
  return all;
}
struct ChildEntry {
  ChildEntry(const char* name, ChildBody body) { children()[name] = body; }
};
// TCPX_CHILD(name) { ...; return 0; }
#define TCPX_CHILD(name)                                           \
  static int child_##name();                                       \
  static const ChildEntry child_entry_##name(#name, child_##name); \
  static int child_##name()

// -1: this is no child.
inline int child_main(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], "--child") != 0) return -1;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return children().at(argv[2])();
}

// Says what went wrong, and where, and goes on; children return the number of these.
inline int& complaints() {
  static int count = 0;
  return count;
}
#define TCPX_COMPLAIN(...)                                                              \
  do {                                                                                  \
    ++complaints();                                                                     \
    std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, strf(__VA_ARGS__).c_str()); \
  } while (0)
#define TCPX_HOLDS(condition)                                         \
  do {                                                                \
    if (!(condition)) TCPX_COMPLAIN("does not hold: {}", #condition); \
  } while (0)

// "" if it ended by itself, in time, with nothing to complain about.
inline std::string run_child(const char* name, Ms limit) {
  char flag[] = "--child";
  std::string path = "/proc/self/exe", which = name;
  char* argv[] = {path.data(), flag, which.data(), nullptr};
  pid_t pid = -1;
  if (::posix_spawn(&pid, path.c_str(), nullptr, nullptr, argv, environ) != 0)
    return "cannot start the child";
  int status = 0;
  bool ended = eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }, limit);
  if (!ended) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, &status, 0);
    return "it had not ended after " + std::to_string(limit.count()) + " ms";
  }
  if (WIFSIGNALED(status)) return std::string("it died of ") + strsignal(WTERMSIG(status));
  if (WEXITSTATUS(status) != 0)
    return std::to_string(WEXITSTATUS(status)) + " things did not hold (see above)";
  return "";
}

}  // namespace tcpx::test
