#include "loopback.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "print.h"

#include "base/clock.h"
#include "bench_control.h"
#include "bench_server.h"
#include "failure.h"

namespace tcpx::tool {
namespace {

constexpr Nanos kStart = 30 * kSecond;  // for the server to be ready and for its client to come
constexpr Nanos kEnd = 3 * kSecond;     // for the server to end after its client

void write_line(int fd, const Json& message) {
  const std::string line = message.dump() + "\n";
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = send(fd, line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(kExitFailed, "telling the client", errno);
    done += static_cast<size_t>(n);
  }
}

void serve_one(const NameValueList& options, int channel) {
  Engine engine = make_engine(options, "server");
  const Bytes info = engine.connection_info();
  write_line(channel, {{"info", to_hex(info.data(), info.size())}});
  tcpx_peer peer = 0;
  const Result came = engine.accept(&peer, Millis{kStart / kMilli});
  if (!came) throw Failure(kExitFailed, "no client came");
  Control control(engine, peer, nullptr);
  serve_client(engine, control, 0);
}

// The server's whole life.
int child_main(const NameValueList& options, int channel) {
  try {
    serve_one(options, channel);
    return kExitOk;
  } catch (const PeerGone&) {
    return kExitFailed;  // the client has said why
  } catch (const Failure& failure) {
    try {
      write_line(channel, {{"error", failure.what()}, {"exit", static_cast<int>(failure.code())}});
    } catch (const Failure&) {
      print(stderr, "server: {}\n", failure.what());
    }
    return failure.code();
  } catch (const std::exception& error) {
    print(stderr, "server: {}\n", error.what());
    return kExitFailed;
  }
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return strf("was killed by signal {}", WTERMSIG(status));
  return strf("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace

LoopbackServer::LoopbackServer(const NameValueList& options, Where where) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    fail_errno(kExitEnvironment, "socketpair", errno);
  channel_ = Fd(pair[0]);  // closed in the child by the library, if there was an engine before
  if (where == Where::kOwnProcess)
    start_process(options, pair[1]);
  else
    start_thread(options, pair[1]);
}

void LoopbackServer::start_process(const NameValueList& options, int channel) {
  std::fflush(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    const int failed = errno;
    close(channel);
    fail_errno(kExitEnvironment, "fork", failed);
  }
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kExitFailed);
    signal(SIGINT, SIG_IGN);  // Ctrl-C reaches both; the client decides
    if (fcntl(channel_.get(), F_GETFD) >= 0) channel_.reset();
    const int code = child_main(options, channel);
    std::fflush(nullptr);
    _exit(code);
  }
  close(channel);
}

void LoopbackServer::start_thread(const NameValueList& options, int channel) {
  thread_ = std::thread([this, options, channel] {
    status_ = W_EXITCODE(child_main(options, channel), 0);
    close(channel);
    thread_ended_ = true;
  });
}

bool LoopbackServer::has_ended() {
  if (!thread_.joinable()) return waitpid(pid_, &status_, WNOHANG) != 0;
  if (!thread_ended_) return false;
  thread_.join();
  return true;
}

void LoopbackServer::kill_it() {
  if (thread_.joinable()) {
    print(stderr, "tcpx: the server does not end\n");
    _exit(kExitFailed);
  }
  killed_by_us_ = true;
  kill(pid_, SIGKILL);
}

LoopbackServer::~LoopbackServer() {
  reap(true);
}

void LoopbackServer::reap(bool wait_long) {
  const Nanos deadline = now_ns() + kEnd;
  while (!ended_) {
    ended_ = has_ended();
    if (ended_ || !wait_long) return;
    if (now_ns() > deadline) kill_it();
    poll(nullptr, 0, 2);
  }
}

void LoopbackServer::check() {
  reap(false);
  if (ended_) throw Failure(kExitFailed, "the server " + how_it_ended(status_));
}

std::string LoopbackServer::cause_of_death() {
  reap(true);
  if (killed_by_us_ || !WIFSIGNALED(status_)) return {};
  return "; the server process " + how_it_ended(status_);
}

Bytes LoopbackServer::connection_info() {
  const Nanos deadline = now_ns() + kStart;
  std::string line;
  while (line.empty() || line.back() != '\n') {
    pollfd entry{channel_.get(), POLLIN, 0};
    poll(&entry, 1, 100);
    char buffer[4096];
    const ssize_t n = recv(channel_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n > 0) {
      line.append(buffer, static_cast<size_t>(n));
      continue;
    }
    if (n == 0) reap(true);
    check();
    if (now_ns() > deadline) throw Failure(kExitFailed, "the server process did not get ready");
  }
  const Json message = Json::parse(line, nullptr, false);
  if (message.is_object() && message.contains("info"))
    return from_hex(message.at("info").get<std::string>());
  throw Failure(static_cast<ExitCode>(message.value("exit", static_cast<int>(kExitFailed))),
                "server: " + message.value("error", std::string("unreadable answer")));
}

}  // namespace tcpx::tool
