// What may end the process or hang in a driver is done by a child process first; what becomes of
// the child decides. Real plugins call exit() in init where there is no GPU or no receive manager,
// and in the registration of memory that they cannot import.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
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
#include "path/net/pages.h"
#include "path/net/plugin.h"

namespace tcpx::net {
namespace {

// ---- what the child says ---------------------------------------------------------------------

// Lines of the plugin, and after each step a mark and one byte: what came of it, or the status with
// which the plugin wanted to exit. Not only by the exit status: an application that ignores
// SIGCHLD, or waits for every child itself, leaves us none.
constexpr char kVerdict = '\x01', kExits = '\x02';
enum Code : int {
  kGood = 0,
  kInitRefused = 101,
  kNoDevice,
  kNotBound,
  kNothingToTry,  // no device takes other memory than the host's
  kNoMemoryToTry,
  kNoComms,
  kRegistering,  // the next verdict is about that
  kRefused,
};
constexpr Nanos kReapPatience = kSecond;
// For comms between two ends of one process: 50 ms of it is the wait for flow steering.
constexpr Nanos kCommsPatience = 2 * kSecond;
int report_fd = -1;  // in the child only

void say(char mark, int code) {
  const char verdict[2] = {mark, static_cast<char>(code)};
  (void)!write(report_fd, verdict, sizeof verdict);
}

void child_log(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level != nccl::kLogWarn) return;
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(text, sizeof text - 1, format, arguments);
  va_end(arguments);
  if (length <= 0) return;
  size_t size = std::min<size_t>(static_cast<size_t>(length), sizeof text - 2);
  std::replace_if(
      text, text + size, [](char c) { return c == kVerdict || c == kExits; }, '?');
  text[size++] = '\n';
  (void)!write(report_fd, text, size);
}

// ---- the child -------------------------------------------------------------------------------

std::unique_ptr<PluginCalls> bind_newest(void* library) {
  std::unique_ptr<PluginCalls> calls;
  for (int version = nccl::kNewestVersion; version >= nccl::kOldestVersion; --version) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
    std::string why;
    if (void* table = dlsym(library, symbol)) calls = bind_table(version, table, &why);
    if (calls != nullptr) break;
  }
  return calls;
}

// A send comm and a receive comm of one device, connected to each other.
struct CommPair {
  void *send = nullptr, *receive = nullptr;

  bool connect(PluginCalls& calls, int device) {
    alignas(16) char offered[nccl::kHandleBytes] = {}, handle[nccl::kHandleBytes];
    nccl::DeviceHandle queue{}, *queue_at = &queue;
    void* listener = nullptr;
    if (calls.listen(device, offered, &listener) != nccl::kSuccess) return false;
    memcpy(handle, offered, sizeof handle);  // connect keeps its state in its own
    for (Nanos give_up = now_ns() + kCommsPatience; send == nullptr || receive == nullptr;) {
      if (send == nullptr && calls.connect(device, handle, &send) != nccl::kSuccess) return false;
      if (receive == nullptr && calls.accept(listener, &receive, &queue_at) != nccl::kSuccess)
        return false;
      if (now_ns() > give_up) return false;
      usleep(500);
    }
    return calls.close_listen(listener) == nccl::kSuccess;
  }
};

bool registers(PluginCalls& calls, void* comm, Pages& memory) {
  void* mhandle = nullptr;
  return calls.reg_mr(comm, memory.data(), memory.size(), nccl::kPtrCuda, &mhandle) ==
             nccl::kSuccess &&
         calls.dereg_mr(comm, mhandle) == nccl::kSuccess;
}

// Memory as the lanes will register it, on a comm of either kind.
int try_registration(PluginCalls& calls, int devices, bool host_is_device) {
  int device = 0;
  DeviceProperties properties;
  for (; device < devices; ++device)
    if (calls.properties(device, &properties) == nccl::kSuccess && properties.unpacks()) break;
  if (device == devices) return kNothingToTry;
  Pages memory;
  if (!host_is_device || !memory.allocate(16 * Pages::kPage)) return kNoMemoryToTry;
  CommPair comms;
  if (!comms.connect(calls, device)) return kNoComms;
  say(kVerdict, kRegistering);
  bool good = registers(calls, comms.send, memory) && registers(calls, comms.receive, memory);
  return good ? kGood : kRefused;
}

[[noreturn]] void child(void* library) {
  alarm(120);  // should the parent be gone
  // A plugin that calls exit() would run the application's exit handlers a second time, here.
  on_exit(
      [](int status, void*) {
        say(kExits, status);
        _exit(status);
      },
      nullptr);
  std::unique_ptr<PluginCalls> calls = bind_newest(library);
  int devices = 0;
  int code = calls == nullptr                                             ? kNotBound
             : calls->init(&child_log) != nccl::kSuccess                  ? kInitRefused
             : calls->devices(&devices) != nccl::kSuccess || devices <= 0 ? kNoDevice
                                                                          : kGood;
  say(kVerdict, code);
  if (code == kGood)
    say(kVerdict, try_registration(*calls, devices, takes_host_for_device(library)));
  _exit(code);
}

// ---- the parent ------------------------------------------------------------------------------

Status unavailable(std::string text) {
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, std::move(text));
}

class Child {
 public:
  ~Child() {
    if (pid_ <= 0) return;
    if (!gone_) kill(pid_, SIGKILL);
    reap();
  }

  Status start(void* library) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Status::system(errno, TCPX_BLAST_ENGINE, "pipe");
    reader_ = Fd(ends[0]);
    Fd writer(ends[1]);
    pid_ = fork();
    if (pid_ < 0) return Status::system(errno, TCPX_BLAST_ENGINE, "fork, to probe the net plugin");
    if (pid_ == 0) {
      report_fd = writer.get();
      child(library);
    }
    return {};
  }

  // What came of its next step: good if `*code` is what it says of it. `*how` is how it went wrong
  // otherwise: "hangs in ...", "dies in ...".
  bool next(Nanos patience, const char* step, int* code, std::string* how) {
    size_t mark = std::string::npos;
    bool in_time = read_until_verdict(now_ns() + patience, &mark);
    if (mark != std::string::npos) {
      bool said = said_[mark] == kVerdict;
      *code = static_cast<unsigned char>(said_[mark + 1]);
      text_ += said_.substr(0, mark);
      said_.erase(0, mark + 2);
      *how = strf("dies in {}: it calls exit({})", step, *code);
      return said;
    }
    text_ += std::exchange(said_, {});
    if (in_time) reap();
    *how = in_time ? strf("dies in {}: {}", step, death())
                   : strf("hangs in {}: no answer within {} ms", step, patience / kMilli);
    return false;
  }

  std::string last_warning() const {
    std::string text = text_;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    size_t start = text.rfind('\n');
    if (start != std::string::npos) text.erase(0, start + 1);
    return text.empty() ? "it said nothing" : "its last warning: " + text;
  }

 private:
  static size_t find_verdict(const std::string& said) {
    size_t mark = said.find_first_of(std::string{kVerdict, kExits});
    return mark != std::string::npos && mark + 1 < said.size() ? mark : std::string::npos;
  }

  // Reads until the child has given a verdict, is gone, or time is up (false). The end of the pipe
  // alone is no sign: another thread may have forked while its writing end was open here.
  bool read_until_verdict(Nanos deadline, size_t* mark) {
    for (;;) {
      *mark = find_verdict(said_);
      if (*mark != std::string::npos) return true;
      pollfd wait{reader_.get(), POLLIN, 0};
      if (poll(&wait, 1, gone_ ? 0 : 20) > 0) {
        char buffer[512];
        ssize_t got = read(reader_.get(), buffer, sizeof buffer);
        if (got <= 0) return true;
        said_.append(buffer, static_cast<size_t>(got));
        if (said_.size() > 16384) said_.erase(0, said_.size() - 8192);
        continue;
      }
      if (gone_) return true;  // and nothing is left to read
      look();
      if (!gone_ && now_ns() > deadline) return false;
    }
  }

  // Whether the child has ended; status_ is set if nobody took that from us.
  void look() {
    pid_t got = waitpid(pid_, &status_, WNOHANG);
    gone_ = gone_ || got == pid_ || (got < 0 && errno == ECHILD);
  }
  // A child that hangs in a driver may not even die: then it is left.
  void reap() {
    for (Nanos give_up = now_ns() + kReapPatience; !gone_ && now_ns() < give_up; look())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string death() const {
    if (WIFSIGNALED(status_)) return strf("signal {}", WTERMSIG(status_));
    return strf("it ends the process with status {}", WEXITSTATUS(status_));
  }

  pid_t pid_ = -1;
  Fd reader_;
  bool gone_ = false;
  int status_ = 0;
  std::string said_, text_;  // not yet looked at; lines of the plugin
};

Status judge_init(Child& child, const std::string& file, Nanos patience) {
  int code = 0;
  std::string how;
  if (!child.next(patience, "init", &code, &how))
    return unavailable(strf("net plugin {} {}; {}", file, how, child.last_warning()));
  switch (code) {
    case kInitRefused:
      return unavailable(strf("net plugin {} refused init; {}", file, child.last_warning()));
    case kNoDevice:
      return unavailable(strf("net plugin {} has no device; {}", file, child.last_warning()));
    case kNotBound: return unavailable(strf("net plugin {} has no known symbol", file));
    default: return {};
  }
}

// Comms within one process may not be possible where those between two hosts are: that there are
// none is no reason to do without the plugin, only to do without the trial.
Status judge_trial(Child& child, const std::string& file, Nanos patience, std::string* trial) {
  int code = 0;
  std::string how;
  bool said = child.next(std::min(patience, kCommsPatience + kSecond), "set-up", &code, &how);
  if (said && code == kRegistering) {
    said = child.next(patience, "a trial registration", &code, &how);
    if (said && code == kGood) {
      *trial = "passed";
      return {};
    }
    if (said) how = "refuses a trial registration";
    return unavailable(strf("net plugin {} {}; {}", file, how, child.last_warning()));
  }
  if (!said)
    *trial = strf("not made: for its comms it {}; {}", how, child.last_warning());
  else if (code == kNothingToTry)
    *trial = "not needed, it takes host memory";
  else if (code == kNoMemoryToTry)
    *trial = "not made: there is no GPU memory to try";
  else
    *trial = strf("not made: no comms within one process; {}", child.last_warning());
  return {};
}

}  // namespace

Status probe_plugin(const std::string& file, Nanos patience, std::string* trial) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unavailable(strf("net plugin not loadable: {}", dlerror()));
  Status status;
  {
    Child child;
    status = child.start(library);
    if (status.ok()) status = judge_init(child, file, patience);
    if (status.ok()) status = judge_trial(child, file, patience, trial);
  }
  dlclose(library);
  return status;
}

}  // namespace tcpx::net
