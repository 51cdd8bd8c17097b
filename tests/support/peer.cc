#include "peer.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "peer_program.h"

extern char** environ;

namespace tcpx::test {

Peer::Peer(Placement placement) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::runtime_error("socketpair failed");
  line_ = ends[0];
  if (placement == Placement::kThread) {
    thread_ = std::thread([end = ends[1]] {
      run_peer_program(end, end);
      ::close(end);
    });
  } else {
    spawn(ends[1]);
    ::close(ends[1]);
  }
}

void Peer::stop() {
  if (line_ >= 0) ::shutdown(line_, SHUT_WR);
  if (thread_.joinable()) thread_.join();
  if (pid_ > 0) {
    ::kill(pid_, SIGCONT);
    if (!eventually([&] { return reap(); }, patience(5'000))) kill();
  }
  if (line_ >= 0) ::close(std::exchange(line_, -1));
}

void Peer::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void Peer::freeze() {
  signal(SIGSTOP);
  int status = 0;
  ::waitpid(pid_, &status, WUNTRACED);  // every thread of it has stopped when this returns
}

Reply Peer::receive(Ms limit) {
  std::string line = receive_line(limit);
  if (line.rfind("ok", 0) == 0) return {TCPX_OK, line.size() > 3 ? line.substr(3) : ""};
  size_t space = line.find(' ', 4);
  return {static_cast<tcpx_code>(std::stoi(line.substr(4))), line.substr(space + 1)};
}

void Peer::create(const Options& options) {
  std::string line = "create";
  for (auto& [name, value] : options) line += " " + name + "=" + value;
  (*this)("{}", line);
}

tcpx_remote_region Peer::memory(const std::string& name, uint64_t size, uint32_t access,
                                uint64_t seed, const std::string& kind, uint64_t skew) {
  send("memory {} {} {} {} {} {}", name, kind, size, access, seed, skew);
  Reply reply = receive(patience_for(size));
  if (!reply.ok()) throw std::runtime_error("memory of the peer: " + reply.text);
  tcpx_remote_region region{};
  Result result = Engine::import_region(from_hex(reply.text), &region);
  if (!result) throw std::runtime_error("import of the peer's region: " + result.text());
  return region;
}

void Peer::fill(const std::string& name, uint64_t offset, uint64_t length, uint64_t seed,
                uint64_t iteration, uint64_t position) {
  send("fill {} {} {} {} {} {}", name, offset, length, seed, iteration, position);
  Reply reply = receive(patience_for(length));
  if (!reply.ok()) throw std::runtime_error("fill of the peer: " + reply.text);
}

std::string Peer::check(const std::string& name, uint64_t offset, uint64_t length, uint64_t seed,
                        uint64_t iteration, uint64_t position) {
  send("check {} {} {} {} {} {}", name, offset, length, seed, iteration, position);
  return receive(patience_for(length)).text;
}

void Peer::spawn(int end) {
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

bool Peer::reap() {
  if (pid_ <= 0) return true;
  if (::waitpid(pid_, nullptr, WNOHANG) == 0) return false;
  pid_ = -1;
  return true;
}

Reply Peer::exchange(const std::string& line) {
  send_line(line);
  return receive();
}

std::string Peer::expect_success(const std::string& line) {
  Reply reply = exchange(line);
  if (!reply.ok())
    throw std::runtime_error("peer: '" + line.substr(0, 80) + "': " + tcpx_code_name(reply.code) +
                             ": " + reply.text);
  return reply.text;
}

void Peer::send_line(std::string line) {
  line += '\n';
  for (size_t at = 0; at < line.size();) {
    ssize_t n = ::send(line_, line.data() + at, line.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw std::runtime_error("the test peer is gone");
    at += static_cast<size_t>(n);
  }
}

std::string Peer::receive_line(Ms limit) {
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

}  // namespace tcpx::test
