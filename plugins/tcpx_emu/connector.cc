#include "connector.h"

#include <algorithm>
#include <map>

#include "base/mutex.h"
#include "log.h"
#include "misuse.h"

namespace tcpx_emu {

namespace {

struct Attempt {
  uint64_t nonce = 0;
  std::unique_ptr<Setup> setup;
  int64_t polls_left = 0;  // fault connect_polls
  Nanos last_poll = 0;
  Nanos forget_after = 0;  // without a poll
};

struct Attempts {
  tcpx::Mutex mutex;
  const uint64_t process = random_word() | 1;
  uint64_t next_id TCPX_GUARDED_BY(mutex) = 1;
  std::map<uint64_t, Attempt> open TCPX_GUARDED_BY(mutex);
};

Attempts& attempts() {
  static auto& all = *new Attempts;  // outlives every thread
  return all;
}

// The number of the attempt, where connect() finds it again: in the caller's handle. The plugin
// keeps a pointer there, reads what it points to and frees it, whoever has put it there; so do we
// if asked to. A number of another process means that a polled buffer was sent on: here it is a new
// attempt.
class KeptNumber {
 public:
  KeptNumber(Handle& handle, uint64_t process, bool as_pointer)
      : handle_(handle), process_(process), as_pointer_(as_pointer) {}

  bool kept() const {
    return handle_.connect_id != 0 && (as_pointer_ || handle_.connect_process == process_);
  }
  void keep(uint64_t number) {
    handle_.connect_process = process_;
    handle_.connect_id = as_pointer_ ? reinterpret_cast<uint64_t>(new uint64_t(number)) : number;
  }
  uint64_t get() const { return as_pointer_ ? *pointer() : handle_.connect_id; }
  void drop() const {
    if (as_pointer_) delete pointer();
  }

 private:
  uint64_t* pointer() const { return reinterpret_cast<uint64_t*>(handle_.connect_id); }

  Handle& handle_;
  const uint64_t process_;
  const bool as_pointer_;
};

Attempt start(const WorldPtr& world, int device, const Handle& handle) {
  Attempt attempt;
  attempt.nonce = handle.nonce;
  attempt.setup =
      std::make_unique<Setup>([world, device, handle](const Wait& wait, Connection* out) {
        return connect_sockets(*world, device, handle, wait, out);
      });
  if (const auto* polls = world->faults.always(Fault::kConnectPolls, device))
    attempt.polls_left = polls->arg;
  attempt.forget_after = world->settings.setup_timeout_ms * kMilli;
  return attempt;
}

// Another copy of the handle is being polled: the plugin would start a second connection, and the
// listener, which takes one, might get sockets of both.
bool already_begun(const Attempts& all, uint64_t nonce) TCPX_REQUIRES(all.mutex) {
  return std::any_of(all.open.begin(), all.open.end(),
                     [&](const auto& entry) { return entry.second.nonce == nonce; });
}

void forget_abandoned(Attempts& all, Nanos now) TCPX_REQUIRES(all.mutex) {
  std::erase_if(all.open, [&](const auto& entry) {
    const Attempt& attempt = entry.second;
    return attempt.setup->state() != Setup::State::kRunning &&
           now - attempt.last_poll > attempt.forget_after;
  });
}

}  // namespace

Result poll_connect(const WorldPtr& world, int device, Handle* handle, SendComm** out) {
  if (handle->magic != kHandleMagic || handle->sockets > static_cast<uint32_t>(kMaxSockets)) {
    EMU_WARN("connect: the handle was not made by listen() of this plugin");
    return nccl::kInternalError;
  }
  Attempts& all = attempts();
  tcpx::MutexLock lock(all.mutex);
  Nanos now = now_ns();
  KeptNumber number(*handle, all.process, world->settings.handle_pointer);
  if (!number.kept()) {
    forget_abandoned(all, now);
    if (world->settings.strict && already_begun(all, handle->nonce))
      return refuse(*world, device, rule::kHandleSame,
                    "connect called with a new copy of a handle");
    number.keep(all.next_id);
    all.open.emplace(all.next_id++, start(world, device, *handle));
  }
  auto found = all.open.find(number.get());
  if (found == all.open.end())
    return refuse(*world, device, rule::kHandleOnce, "connect called with a handle already used");

  Attempt& attempt = found->second;
  attempt.last_poll = now;
  Setup::State state = attempt.setup->state();
  if (state == Setup::State::kFailed) {
    EMU_WARN("connect: %s", attempt.setup->error().c_str());
    number.drop();
    all.open.erase(found);
    return nccl::kInternalError;
  }
  bool at_once = world->faults.always(Fault::kConnectAtOnce, device) != nullptr;
  bool wait = state == Setup::State::kRunning && !at_once;
  if (wait || attempt.polls_left-- > 0) return nccl::kSuccess;
  *out = new SendComm(world, device, std::move(attempt.setup));
  number.drop();
  all.open.erase(found);
  return nccl::kSuccess;
}

}  // namespace tcpx_emu
