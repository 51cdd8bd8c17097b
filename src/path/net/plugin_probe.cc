// init() of real plugins calls exit() where there is no GPU or no receive manager, and may hang in
// a driver. So a child process does it first; what becomes of the child decides.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "path/net/plugin.h"

namespace tcpx::net {
namespace {

constexpr int kInitRefused = 101, kNoDevice = 102, kNotBound = 103;
// Then one byte, and nothing follows: what the child found; or the status with which the plugin
// wanted to exit.
constexpr char kVerdict = '\x01', kExits = '\x02';
constexpr Nanos kReapPatience = kSecond;
int report_fd = -1;  // in the child only

// Not only by the exit status: an application that ignores SIGCHLD, or waits for every child
// itself, leaves us none.
[[noreturn]] void end_child(char kind, int code) {
  const char verdict[2] = {kind, static_cast<char>(code)};
  (void)!write(report_fd, verdict, sizeof verdict);
  _exit(code);
}

void child_log(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level != nccl::kLogWarn) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (length <= 0) return;
  (void)!write(report_fd, text, std::min<size_t>(static_cast<size_t>(length), sizeof text - 1));
  (void)!write(report_fd, "\n", 1);
}

[[noreturn]] void child(void* library) {
  alarm(120);  // should the parent be gone
  // A plugin that calls exit() would run the application's exit handlers a second time, here.
  on_exit([](int status, void*) { end_child(kExits, status); }, nullptr);
  int code = kNotBound;
  for (int version = nccl::kNewestVersion; version >= nccl::kOldestVersion; --version) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
    void* table = dlsym(library, symbol);
    if (table == nullptr) continue;
    std::string why;
    std::unique_ptr<PluginCalls> calls = bind_table(version, table, &why);
    if (calls == nullptr) continue;
    int count = 0;
    code = calls->init(&child_log) != nccl::kSuccess                ? kInitRefused
           : calls->devices(&count) != nccl::kSuccess || count <= 0 ? kNoDevice
                                                                    : 0;
    break;
  }
  end_child(kVerdict, code);
}

// The last line of what the child said.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t start = text.rfind('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

bool has_verdict(const std::string& said) {
  if (said.size() < 2) return false;
  char kind = said[said.size() - 2];
  return kind == kVerdict || kind == kExits;
}

// Whether the child has ended; *status is set if nobody took that from us.
bool reaped(pid_t pid, int* status) {
  pid_t got = waitpid(pid, status, WNOHANG);
  return got == pid || (got < 0 && errno == ECHILD);
}

// Reads until the child has given its verdict, is gone, or time is up (false). The end of the pipe
// alone is no sign: another thread may have forked while its writing end was open here.
bool collect(int fd, pid_t pid, Nanos deadline, std::string* said, int* status) {
  for (bool gone = false;;) {
    pollfd wait{fd, POLLIN, 0};
    int ready = poll(&wait, 1, gone ? 0 : 20);
    if (ready > 0) {
      char buffer[512];
      ssize_t got = read(fd, buffer, sizeof buffer);
      if (got <= 0) return true;
      said->append(buffer, static_cast<size_t>(got));
      if (said->size() > 16384) said->erase(0, said->size() - 8192);
      if (has_verdict(*said)) return true;
    } else if (gone) {
      return true;  // and nothing is left to read
    }
    gone = gone || reaped(pid, status);
    if (!gone && now_ns() > deadline) return false;
  }
}

std::string death(int status) {
  if (WIFSIGNALED(status)) return strf("signal {}", WTERMSIG(status));
  return strf("it ends the process with status {}", WEXITSTATUS(status));
}

// A child that hangs in a driver may not even die: then it is left.
void reap(pid_t pid, int* status) {
  for (Nanos give_up = now_ns() + kReapPatience; !reaped(pid, status) && now_ns() < give_up;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Status unavailable(std::string text) {
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, std::move(text));
}

}  // namespace

Status probe_plugin(const std::string& file, Nanos patience) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unavailable(strf("net plugin not loadable: {}", dlerror()));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Status::system(errno, TCPX_BLAST_ENGINE, "pipe");
  Fd reader(ends[0]), writer(ends[1]);
  pid_t pid = fork();
  if (pid < 0) return Status::system(errno, TCPX_BLAST_ENGINE, "fork, to probe the net plugin");
  if (pid == 0) {
    report_fd = writer.get();
    child(library);
  }
  writer.reset();
  std::string said;
  int status = 0;
  bool ended = collect(reader.get(), pid, now_ns() + patience, &said, &status);
  if (!ended) kill(pid, SIGKILL);
  reap(pid, &status);
  dlclose(library);
  bool told = has_verdict(said);
  int code = told ? static_cast<unsigned char>(said.back()) : -1;
  bool exits = told && said[said.size() - 2] == kExits;
  if (told) said.resize(said.size() - 2);
  std::string warning = last_line(said);
  std::string because = warning.empty() ? "it said nothing" : "its last warning: " + warning;
  if (!ended)
    return unavailable(strf("net plugin {} hangs in init: no answer within {} ms; {}", file,
                            patience / kMilli, because));
  if (exits)
    return unavailable(
        strf("net plugin {} dies in init: it calls exit({}); {}", file, code, because));
  switch (code) {
    case 0: return {};
    case kInitRefused: return unavailable(strf("net plugin {} refused init; {}", file, because));
    case kNoDevice: return unavailable(strf("net plugin {} has no device; {}", file, because));
    case kNotBound: return unavailable(strf("net plugin {} has no known symbol", file));
    default:
      return unavailable(strf("net plugin {} dies in init: {}; {}", file, death(status), because));
  }
}

}  // namespace tcpx::net
