// What may end the process or hang in a driver is done by a child process first; what becomes of
// the child decides. Real plugins call exit() in init where there is no GPU or no receive manager,
// and in the registration of memory that they cannot import.
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
#include "memory/pages.h"
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
  kNothingToTry,  // no device takes other memory than the host's
  kNoMemoryToTry,
  kNoComms,
  kRegistering,  // the next verdict is about that
  kRefused,
};
constexpr Nanos kReapPatience = kSecond;
// For comms between two ends of one process: 50 ms of it is the wait for flow steering.
constexpr Nanos kCommsPatience = 2 * kSecond;
constexpr Nanos kForever = INT64_MAX / 4;
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

// Memory as lanes register it, on a comm of either kind of the first device that unpacks.
int try_registration(PluginCalls& calls, const std::vector<DeviceProperties>& devices,
                     bool host_is_device) {
  auto device = std::find_if(devices.begin(), devices.end(),
                             [](const DeviceProperties& d) { return d.unpacks(); });
  if (device == devices.end()) return kNothingToTry;
  Pages memory;
  if (!host_is_device || !memory.allocate(16 * Pages::kPage)) return kNoMemoryToTry;
  CommPair comms;
  if (!comms.connect(calls, static_cast<int>(device - devices.begin()))) return kNoComms;
  say(kVerdict, kRegistering);
  bool good = registers(calls, comms.send, memory) && registers(calls, comms.receive, memory);
  return good ? kGood : kRefused;
}

int try_init(PluginCalls& calls, std::vector<DeviceProperties>* devices) {
  int count = 0;
  if (calls.init(&child_log) != nccl::kSuccess) return kInitRefused;
  if (calls.devices(&count) != nccl::kSuccess || count <= 0) return kNoDevice;
  devices->resize(static_cast<size_t>(count));
  for (int device = 0; device < count; ++device)
    (void)calls.properties(device, &(*devices)[static_cast<size_t>(device)]);
  return kGood;
}

// An exception, also one of the plugin's, ends it here and not in the application's code.
[[noreturn]] void child(void* library, PluginCalls& calls, const Probe& probe) noexcept {
  signal(SIGALRM, SIG_DFL);
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  sigprocmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(static_cast<unsigned>(probe.patience / kSecond) + 10);  // should the parent be gone
  // A plugin that calls exit() would run the application's exit handlers a second time, here.
  on_exit(
      [](int status, void*) {
        say(kExits, status);
        _exit(status);
      },
      nullptr);
  std::vector<DeviceProperties> devices;
  int code = try_init(calls, &devices);
  say(kVerdict, code);
  if (code == kGood && probe.registration)
    say(kVerdict, try_registration(calls, devices, takes_host_for_device(library)));
  _exit(code);
}

// ---- the parent ------------------------------------------------------------------------------

Status unavailable(std::string text) {
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, std::move(text));
}

class Child {
 public:
  // How a step ended.
  enum class End { kSaid, kDied, kSilent };

  ~Child() {
    if (pid_ <= 0) return;
    if (done_) reap();  // it ends by itself: no need to kill whoever may have its number by now
    look();
    if (gone_) return;
    kill(pid_, SIGKILL);
    reap();
  }

  Status start(void* library, PluginCalls& calls, const Probe& probe) {
    deadline_ = now_ns() + probe.patience;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return Status::system(errno, TCPX_BLAST_ENGINE, "pipe");
    reader_ = Fd(ends[0]);  // which the child closes, as all of ours
    pid_ = fork();
    if (pid_ == 0) {
      report_fd = ends[1];
      child(library, calls, probe);
    }
    int failed = errno;
    close(ends[1]);
    if (pid_ < 0) return Status::system(failed, TCPX_BLAST_ENGINE, "fork, to probe the net plugin");
    return {};
  }

  // What came of its next step: kSaid if `*code` is what it says of it, else `*how` is how it went
  // wrong: "hangs in ...", "dies in ...". At most for so long, and not beyond the probe's patience.
  End next(const char* step, Nanos most, int* code, std::string* how) {
    Nanos from = now_ns(), until = std::min(deadline_, from + most);
    size_t mark = std::string::npos;
    bool in_time = read_until_verdict(until, &mark);
    if (mark != std::string::npos) {
      bool said = said_[mark] == kVerdict;
      *code = static_cast<unsigned char>(said_[mark + 1]);
      text_ += said_.substr(0, mark);
      said_.erase(0, mark + 2);
      *how = strf("dies in {}: it calls exit({})", step, *code);
      return said ? End::kSaid : End::kDied;
    }
    text_ += std::exchange(said_, {});
    *how = in_time ? strf("dies in {}: {}", step, death())
                   : strf("hangs in {}: no answer within {} ms", step, (until - from) / kMilli);
    return in_time ? End::kDied : End::kSilent;
  }
  void done() { done_ = true; }  // it has said its last

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
  // alone is no sign: another thread may have forked while its writing end was open here, and a
  // plugin may close what is not its own. Nor is silence: a plugin may complain for ever.
  bool read_until_verdict(Nanos deadline, size_t* mark) {
    for (;;) {
      *mark = find_verdict(said_);
      if (*mark != std::string::npos) return true;
      pollfd wait{reader_ ? reader_.get() : -1, POLLIN, 0};
      if (poll(&wait, 1, gone_ ? 0 : 20) > 0)
        read_some();
      else if (gone_)
        return true;  // and nothing is left to read
      look();
      if (now_ns() <= deadline) continue;
      *mark = find_verdict(said_);
      return gone_ || *mark != std::string::npos;
    }
  }
  void read_some() {
    char buffer[512];
    ssize_t got = read(reader_.get(), buffer, sizeof buffer);
    if (got <= 0) return reader_.reset();
    said_.append(buffer, static_cast<size_t>(got));
    if (said_.size() > 16384) said_.erase(0, said_.size() - 8192);
  }

  // Whether the child has ended, and how if nobody took that from us.
  void look() {
    if (gone_) return;
    pid_t got = waitpid(pid_, &status_, WNOHANG);
    gone_ = got == pid_ || (got < 0 && errno == ECHILD);
    knows_how_ = got == pid_;
  }
  // A child that hangs in a driver may not even die: then it is left.
  void reap() {
    for (Nanos give_up = now_ns() + kReapPatience; !gone_ && now_ns() < give_up; look())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string death() const {
    if (!knows_how_) return "somebody else took its exit status";
    if (WIFSIGNALED(status_)) return strf("signal {}", WTERMSIG(status_));
    return strf("it ends the process with status {}", WEXITSTATUS(status_));
  }

  Nanos deadline_ = 0;
  pid_t pid_ = -1;
  Fd reader_;
  bool gone_ = false, knows_how_ = false, done_ = false;
  int status_ = 0;
  std::string said_, text_;  // not yet looked at; lines of the plugin
};

Status judge_init(Child& child, const std::string& file) {
  int code = 0;
  std::string how;
  if (child.next("init", kForever, &code, &how) != Child::End::kSaid)
    return unavailable(strf("net plugin {} {}; {}", file, how, child.last_warning()));
  if (code == kInitRefused)
    return unavailable(strf("net plugin {} refused init; {}", file, child.last_warning()));
  if (code == kNoDevice)
    return unavailable(strf("net plugin {} has no device; {}", file, child.last_warning()));
  return {};
}

// Comms within one process may not be possible where those between two hosts are: that there are
// none is no reason to do without the plugin, only without the trial. Who dies of it is another
// matter: lanes make the same calls.
Status judge_trial(Child& child, const std::string& file, std::string* trial) {
  int code = 0;
  std::string how;
  Child::End end = child.next("set-up", kCommsPatience + kSecond, &code, &how);
  bool registers = end == Child::End::kSaid && code == kRegistering;
  if (registers) end = child.next("a trial registration", kForever, &code, &how);
  if (end == Child::End::kSaid) child.done();
  if (end == Child::End::kSaid && code == kRefused) how = "refuses a trial registration";
  if (end == Child::End::kDied || (registers && !(end == Child::End::kSaid && code == kGood)))
    return unavailable(strf("net plugin {} {}; {}", file, how, child.last_warning()));
  if (registers)
    *trial = "passed";
  else if (end == Child::End::kSilent)
    *trial = strf("not made: it {}; {}", how, child.last_warning());
  else if (code == kNothingToTry)
    *trial = "not needed, it takes host memory";
  else if (code == kNoMemoryToTry)
    *trial = "not made: there is no GPU memory to try";
  else
    *trial = strf("not made: no comms within one process; {}", child.last_warning());
  return {};
}

}  // namespace

Status probe_plugin(const std::string& file, void* library, PluginCalls& calls, const Probe& probe,
                    std::string* trial) {
  Child child;
  if (Status status = child.start(library, calls, probe); !status) return status;
  if (Status status = judge_init(child, file); !status) return status;
  *trial = "not asked for";
  if (probe.registration) return judge_trial(child, file, trial);
  child.done();
  return {};
}

}  // namespace tcpx::net
