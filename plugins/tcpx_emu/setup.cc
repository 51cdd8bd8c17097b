#include "setup.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "abi.h"
#include "log.h"
#include "misuse.h"

namespace tcpx_emu {

static_assert(sizeof(Handle) <= nccl::kHandleBytes);

namespace {

constexpr Nanos kHelloTime = kSecond;  // a stranger's connection must not hold up the right one
constexpr Nanos kBetweenTries = 10 * kMilli;

enum class State : uint32_t { kOk = 0, kPending = 1, kFailed = 2 };
enum class Role : uint32_t { kControl = 0, kData = 1 };

// First bytes on every socket.
struct Hello {
  uint64_t magic;
  uint64_t nonce;
  Role role;
  uint32_t flags;
};

// The parts of a set-up that both ends need at every step.
struct Step {
  World& world;
  int device;
  const Handle& handle;
  const Wait& wait;
  Nanos deadline;

  template <class T>
  bool read(const Fd& fd, T* out) const {
    return read_all(fd.get(), out, sizeof *out, wait, deadline);
  }
  template <class T>
  bool write(const Fd& fd, const T& value) const {
    return write_all(fd.get(), &value, sizeof value, wait, deadline);
  }
  bool socket_delay() const { return wait.sleep(world.settings.socket_delay_us * kMicro); }
};

Step make_step(World& world, int device, const Handle& handle, const Wait& wait) {
  return {world, device, handle, wait, now_ns() + world.settings.setup_timeout_ms * kMilli};
}

std::string recv_sync_mismatch(const Step& step) {
  refuse(step.world, step.device, rule::kRecvSync, "Recv sync mismatch");
  return "Recv sync mismatch";
}

// Accepts connections until one says it belongs to this handle.
Fd accept_ours(const Step& step, int listener, Role role, Hello* hello) {
  for (;;) {
    Fd fd = accept_one(listener, step.wait, step.deadline);
    if (!fd) return fd;
    Nanos limit = std::min(step.deadline, now_ns() + kHelloTime);
    if (read_all(fd.get(), hello, sizeof *hello, step.wait, limit) &&
        hello->magic == kHandleMagic && hello->nonce == step.handle.nonce && hello->role == role)
      return fd;
  }
}

Fd connect_ours(const Step& step, const SocketAddress& remote, const SocketAddress& local,
                Role role) {
  // Once the control socket is there, a refused data socket means that the listener was closed.
  bool insist = role == Role::kControl;
  Fd fd = connect_to(remote, local, step.wait, step.deadline, insist);
  Hello hello{kHandleMagic, step.handle.nonce, role, flags_of(step.world.settings)};
  if (fd && !step.write(fd, hello)) return {};
  return fd;
}

// Stands for RxDM's answer to the request for a flow-steering rule.
State program_rule(const Step& step) {
  FaultPlan& faults = step.world.faults;
  if (faults.always(Fault::kSteeringSilent, step.device)) {
    step.wait.sleep(Wait::kForever);
    return State::kFailed;
  }
  const FaultPlan::Item* refused = faults.from(Fault::kSteeringRefused, step.device);
  if (refused == nullptr) return State::kOk;
  bool still =
      refused->arg < 0 || refused->seen.load() < refused->n + static_cast<uint64_t>(refused->arg);
  if (!still) return State::kOk;
  EMU_WARN("update flow steering rule failed against receive-datapath-manager: refused");
  return State::kPending;
}

// One data socket; kPending: try again.
State accept_data(const Step& step, int listener, Connection* out) {
  Hello hello;
  Fd fd = accept_ours(step, listener, Role::kData, &hello);
  if (!fd) return State::kFailed;
  State mine = program_rule(step), theirs;
  if (!step.write(out->control, mine) || !step.read(out->control, &theirs)) return State::kFailed;
  if (mine != State::kOk) return mine;
  if (theirs != State::kOk) return theirs;
  uint32_t index;
  if (!step.read(out->control, &index) || index >= out->data.size()) return State::kFailed;
  out->data[index] = std::move(fd);
  return State::kOk;
}

State connect_data(const Step& step, uint32_t index, Connection* out) {
  Fd fd = connect_ours(step, step.handle.data, step.world.nics[step.device].data, Role::kData);
  State mine = fd ? State::kOk : State::kFailed, theirs;
  if (!fd) return mine;  // the acceptor has no connection to answer for
  if (!step.read(out->control, &theirs) || !step.write(out->control, mine)) return State::kFailed;
  if (theirs != State::kOk) return theirs;
  if (!step.write(out->control, index)) return State::kFailed;
  out->data[index] = std::move(fd);
  return State::kOk;
}

// All data sockets, each up to the number of tries that is set.
template <class One>
bool all_data_sockets(const Step& step, Connection* out, One one) {
  out->data.resize(step.handle.sockets);
  for (uint32_t index = step.handle.sockets; index-- > 0;) {
    if (!step.socket_delay()) return false;
    State state = State::kFailed;
    for (int64_t attempt = 0; attempt < step.world.settings.connection_tries; ++attempt) {
      if (attempt > 0 && !step.wait.sleep(kBetweenTries)) return false;
      state = one(index);
      if (state != State::kPending) break;
    }
    if (state != State::kOk) return false;
  }
  return true;
}

}  // namespace

uint32_t flags_of(const Settings& settings) {
  return (settings.recv_sync ? kFlagRecvSync : 0) | (settings.send_done_acked ? kFlagAcks : 0);
}

uint64_t random_word() {
  uint64_t word = 0;
  while (::getrandom(&word, sizeof word, 0) != sizeof word) {
  }
  return word;
}

Setup::Setup(const Work& work) {
  try {
    std::thread([job = job_, work] {
      job->error = work(job->wait, &job->connection);
      if (!job->error.empty()) job->connection = {};
      job->state = job->error.empty() ? State::kReady : State::kFailed;
    }).detach();
  } catch (const std::system_error& error) {
    job_->error = std::string("no thread for the set-up: ") + error.what();
    job_->state = State::kFailed;
  }
}

std::string connect_sockets(World& world, int device, const Handle& handle, const Wait& wait,
                            Connection* out) {
  Step step = make_step(world, device, handle, wait);
  out->peer_flags = handle.flags;
  if (!step.socket_delay()) return "called off";
  out->control = connect_ours(step, handle.control, world.nics[device].control, Role::kControl);
  if (!out->control)
    return "failed to connect socket to " + to_string(handle.control) + ": " + std::strerror(errno);
  if ((flags_of(world.settings) ^ handle.flags) & kFlagRecvSync) return recv_sync_mismatch(step);
  if (!all_data_sockets(step, out, [&](uint32_t index) { return connect_data(step, index, out); }))
    return "failed to connect socket to " + to_string(handle.data);
  return {};
}

std::string accept_sockets(World& world, int device, const Handle& handle, int control_listener,
                           int data_listener, const Wait& wait, Connection* out) {
  Step step = make_step(world, device, handle, wait);
  if (!step.socket_delay()) return "called off";
  Hello hello;
  out->control = accept_ours(step, control_listener, Role::kControl, &hello);
  if (!out->control) return "failed accept socket: nobody connected in time";
  if ((hello.flags ^ flags_of(world.settings)) & kFlagRecvSync) return recv_sync_mismatch(step);
  out->peer_flags = hello.flags;
  if (!all_data_sockets(step, out, [&](uint32_t) { return accept_data(step, data_listener, out); }))
    return "failed accept socket";
  // The real rule takes a while to be in force; the sender does not wait for it.
  if (!wait.sleep(world.settings.steering_wait_us * kMicro)) return "called off";
  return {};
}

}  // namespace tcpx_emu
