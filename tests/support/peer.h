// The test's handle on a PeerProgram, wherever it runs.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "base/text.h"

#include "peer_program.h"

extern char** environ;

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
  explicit Peer(Placement placement = Placement::kProcess) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("socketpair failed");
    line_ = ends[0];
    if (placement == Placement::kThread) {
      thread_ = std::thread([end = ends[1]] {
        PeerProgram(end, end).run();
        ::close(end);
      });
    } else {
      spawn(ends[1]);
      ::close(ends[1]);
    }
  }
  ~Peer() { stop(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Ends the program: a process that does not end by itself in time is killed.
  void stop() {
    if (line_ >= 0) ::shutdown(line_, SHUT_WR);
    if (thread_.joinable()) thread_.join();
    if (pid_ > 0) {
      ::kill(pid_, SIGCONT);
      if (!eventually([&] { return reap(); }, patience(5'000))) kill();
    }
    if (line_ >= 0) ::close(std::exchange(line_, -1));
  }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void signal(int number) {
    if (pid_ > 0) ::kill(pid_, number);
  }
  void freeze() {
    signal(SIGSTOP);
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);  // every thread of it has stopped when this returns
  }
  void thaw() { signal(SIGCONT); }
  pid_t pid() const { return pid_; }

  // Sends a command and waits for its answer. The first form expects success.
  template <class... Args>
  std::string operator()(fmt::format_string<Args...> format, const Args&... args) {
    std::string line = strf(format, args...);
    Reply reply = exchange(line);
    if (!reply.ok())
      throw std::runtime_error("peer: '" + line.substr(0, 80) + "': " + tcpx_code_name(reply.code) +
                               ": " + reply.text);
    return reply.text;
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
  Reply receive(Ms limit = kLong) {
    std::string line = receive_line(limit);
    if (line.rfind("ok", 0) == 0) return {TCPX_OK, line.size() > 3 ? line.substr(3) : ""};
    size_t space = line.find(' ', 4);
    return {static_cast<tcpx_code>(std::stoi(line.substr(4))), line.substr(space + 1)};
  }

  // ---- shorthands ----
  void create(const Options& options) {
    std::string line = "create";
    for (auto& [name, value] : options) line += " " + name + "=" + value;
    (*this)("{}", line);
  }
  Bytes info() { return from_hex((*this)("info")); }
  tcpx_remote_region memory(const std::string& name, uint64_t size, uint32_t access,
                            uint64_t seed = 1, const std::string& kind = "host",
                            uint64_t skew = 0) {
    send("memory {} {} {} {} {} {}", name, kind, size, access, seed, skew);
    Reply reply = receive(patience_for(size));
    if (!reply.ok()) throw std::runtime_error("memory of the peer: " + reply.text);
    tcpx_remote_region region{};
    Result result = Engine::import_region(from_hex(reply.text), &region);
    if (!result) throw std::runtime_error("import of the peer's region: " + result.text());
    return region;
  }
  void fill(const std::string& name, uint64_t offset, uint64_t length, uint64_t seed,
            uint64_t iteration, uint64_t position) {
    send("fill {} {} {} {} {} {}", name, offset, length, seed, iteration, position);
    Reply reply = receive(patience_for(length));
    if (!reply.ok()) throw std::runtime_error("fill of the peer: " + reply.text);
  }
  // "" if the content is Pattern(seed, iteration) counted from `position`.
  std::string check(const std::string& name, uint64_t offset, uint64_t length, uint64_t seed,
                    uint64_t iteration, uint64_t position) {
    send("check {} {} {} {} {} {}", name, offset, length, seed, iteration, position);
    return receive(patience_for(length)).text;
  }

 private:
  // TCPX_TEST_PEER, or this very binary, whose main() calls peer_main().
  void spawn(int end) {
    const char* program = std::getenv("TCPX_TEST_PEER");
    std::string path = program != nullptr && *program != '\0' ? program : "/proc/self/exe";
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, end, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, end, STDOUT_FILENO);
    char flag[] = "--peer";
    char* argv[] = {path.data(), flag, nullptr};
    int error = ::posix_spawn(&pid_, path.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw std::runtime_error("cannot start " + path);
  }
  bool reap() {
    if (pid_ <= 0) return true;
    if (::waitpid(pid_, nullptr, WNOHANG) == 0) return false;
    pid_ = -1;
    return true;
  }

  Reply exchange(const std::string& line) {
    send_line(line);
    return receive();
  }
  void send_line(std::string line) {
    line += '\n';
    for (size_t at = 0; at < line.size();) {
      ssize_t n = ::send(line_, line.data() + at, line.size() - at, MSG_NOSIGNAL);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw std::runtime_error("the test peer is gone");
      at += static_cast<size_t>(n);
    }
  }
  std::string receive_line(Ms limit) {
    auto end = Clock::now() + limit;
    for (;;) {
      size_t newline = input_.find('\n');
      if (newline != std::string::npos) {
        std::string line = input_.substr(0, newline);
        input_.erase(0, newline + 1);
        return line;
      }
      auto left = std::chrono::duration_cast<Ms>(end - Clock::now()).count();
      pollfd waiter{line_, POLLIN, 0};
      if (left <= 0 || ::poll(&waiter, 1, static_cast<int>(left)) == 0)
        throw std::runtime_error("the test peer did not answer in time");
      char buffer[65536];
      ssize_t n = ::read(line_, buffer, sizeof buffer);
      if (n <= 0) throw std::runtime_error("the test peer is gone");
      input_.append(buffer, static_cast<size_t>(n));
    }
  }

  int line_ = -1;
  pid_t pid_ = -1;
  std::thread thread_;
  std::string input_;
};

}  // namespace tcpx::test
