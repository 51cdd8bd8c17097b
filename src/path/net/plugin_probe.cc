// init() of real plugins calls exit() where there is no GPU or no receive manager, and may hang in
// a driver. So a child process does it first; what becomes of the child decides.
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/text.h"
#include "path/net/plugin.h"

namespace tcpx::net {
namespace {

constexpr int kInitRefused = 101, kNoDevice = 102, kNotBound = 103;
int report_fd = -1;  // in the child only

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
  on_exit([](int status, void*) { _exit(status); }, nullptr);
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
  _exit(code);
}

// The last line of what the child said.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t start = text.rfind('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

// Reads until the child closes its end or time is up. False: time is up.
bool collect(int fd, Nanos deadline, std::string* said) {
  for (;;) {
    Nanos left = deadline - now_ns();
    if (left <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    int ready = poll(&wait, 1, static_cast<int>(left / kMilli) + 1);
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    char buffer[512];
    ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return true;
    said->append(buffer, static_cast<size_t>(got));
    if (said->size() > 16384) said->erase(0, said->size() - 8192);
  }
}

Status unavailable(std::string text) {
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, std::move(text));
}

}  // namespace

Status probe_plugin(const std::string& file, Nanos patience) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unavailable(strf("net plugin not loadable: {}", dlerror()));
  int ends[2];
  if (pipe(ends) != 0) return Status::system(errno, TCPX_BLAST_ENGINE, "pipe");
  Fd reader(ends[0]), writer(ends[1]);
  pid_t pid = fork();
  if (pid < 0) return Status::system(errno, TCPX_BLAST_ENGINE, "fork, to probe the net plugin");
  if (pid == 0) {
    report_fd = writer.get();
    child(library);
  }
  writer.reset();
  std::string said;
  bool ended = collect(reader.get(), now_ns() + patience, &said);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  dlclose(library);
  std::string warning = last_line(said);
  std::string because = warning.empty() ? "it said nothing" : "its last warning: " + warning;
  if (!ended)
    return unavailable(strf("net plugin {} hangs in init: no answer within {} ms; {}", file,
                            patience / kMilli, because));
  if (WIFSIGNALED(status))
    return unavailable(
        strf("net plugin {} dies in init: signal {}; {}", file, WTERMSIG(status), because));
  switch (WEXITSTATUS(status)) {
    case 0: return {};
    case kInitRefused: return unavailable(strf("net plugin {} refused init; {}", file, because));
    case kNoDevice: return unavailable(strf("net plugin {} has no device; {}", file, because));
    default:
      return unavailable(strf("net plugin {} dies in init: it calls exit({}); {}", file,
                              WEXITSTATUS(status), because));
  }
}

}  // namespace tcpx::net
