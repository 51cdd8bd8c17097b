// The test's handle on a PeerProgram, wherever it runs.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

#include <tcpx/tcpx.hpp>

#include "base/text.h"

#include "env.h"
#include "hex.h"
#include "memory.h"

namespace tcpx::test {

enum class Placement { kThread, kProcess };

struct Reply {
  tcpx_code code = TCPX_OK;
  std::string text;
  bool ok() const { return code == TCPX_OK; }
};

class Peer {
 public:
  // A socket pair, not pipes: sending to a killed peer must not raise SIGPIPE here, and ignoring
  // that signal would hide an engine that raises it.
  explicit Peer(Placement placement = Placement::kProcess);
  ~Peer() { stop(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Ends the program: a process that does not end by itself in time is killed.
  void stop();
  void kill();
  void signal(int number) {
    if (pid_ > 0) ::kill(pid_, number);
  }
  void freeze();
  void thaw() { signal(SIGCONT); }
  pid_t pid() const { return pid_; }

  // Sends a command and waits for its answer. The first form expects success.
  template <class... Args>
  std::string operator()(fmt::format_string<Args...> format, const Args&... args) {
    return expect_success(strf(format, args...));
  }
  template <class... Args>
  Reply call(fmt::format_string<Args...> format, const Args&... args) {
    return exchange(strf(format, args...));
  }
  // For commands that take long: send now, receive later.
  template <class... Args>
  void send(fmt::format_string<Args...> format, const Args&... args) {
    send_line(strf(format, args...));
  }
  Reply receive(Ms limit = kLong);

  // ---- shorthands ----
  void create(const Options& options);
  Bytes info() { return from_hex((*this)("info")); }
  tcpx_remote_region memory(const std::string& name, uint64_t size, uint32_t access,
                            uint64_t seed = 1, const std::string& kind = usual_memory(),
                            uint64_t skew = 0);
  void fill(const std::string& name, uint64_t offset, uint64_t length, uint64_t seed,
            uint64_t iteration, uint64_t position);
  // "" if the content is Pattern(seed, iteration) counted from `position`.
  std::string check(const std::string& name, uint64_t offset, uint64_t length, uint64_t seed,
                    uint64_t iteration, uint64_t position);

 private:
  // TCPX_TEST_PEER, or this very binary, whose main() calls peer_main().
  void spawn(int end);
  bool reap();

  Reply exchange(const std::string& line);
  std::string expect_success(const std::string& line);
  void send_line(std::string line);
  std::string receive_line(Ms limit);

  int line_ = -1;
  pid_t pid_ = -1;
  std::thread thread_;
  std::string input_;
};

}  // namespace tcpx::test
