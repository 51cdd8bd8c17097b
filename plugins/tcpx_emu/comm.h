// What a sending and a receiving comm have in common: 16 requests in a ring, first in first out,
// and test(), inside which everything moves. One thread at a time; nothing here is locked.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "abi.h"
#include "clock.h"
#include "memory.h"
#include "setup.h"
#include "world.h"

namespace tcpx_emu {

class Comm;

struct Request {
  Comm* comm = nullptr;
  uint64_t ordinal = 0;
  uint8_t* data = nullptr;
  const Region* region = nullptr;
  uint64_t size = 0;       // posted
  uint64_t total = 0;      // sent by the sender
  uint64_t announced = 0;  // bytes that control messages have named
  bool all_announced = false;
  uint64_t moved = 0;        // bytes through a data socket
  uint64_t control_end = 0;  // of a send: position in the control stream behind its last message
  Nanos completed = 0;       // when it was; 0: not yet
  // Of a receive.
  uint32_t pages = 0;      // taken from the pool
  uint32_t fragments = 0;  // planned
  uint32_t pieces = 0;
  const char* strike = nullptr;  // faults no_cmsg, host_landed: said when its first byte comes
  bool hang = false;             // fault data_hang: its bytes never move
};

// One control message for every piece: on which socket it comes and where it belongs.
struct ControlMessage {
  uint16_t type;
  uint16_t socket;
  uint32_t size;
  uint32_t offset;
  uint32_t total;
};
static_assert(sizeof(ControlMessage) == 16);
inline constexpr uint16_t kMessageNormal = 0, kMessageInline = 1;

// From the receiver back: one word per posted receive (RECV_SYNC) or per received request (acks).
inline constexpr uint32_t kWordPosted = 0, kWordReceived = 1u << 31;

class Comm {
 public:
  enum class Kind : uint32_t { kSend = 0x444e4553, kReceive = 0x56434552 };

  virtual ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  const Kind kind;
  const int device;
  World& world() const { return *world_; }
  const Settings& settings() const { return world_->settings; }

  Result test(Request* request, int* done, int* sizes);
  // What close returns; the comm is destroyed in any case.
  virtual Result check_close() { return nccl::kSuccess; }

  // Set-up may still be under way (fault connect_at_once). kSuccess and false: not ready yet.
  Result ready(bool* yes);

  std::atomic<bool> in_call{false};

 protected:
  Comm(Kind kind, WorldPtr world, int device, std::unique_ptr<Setup> setup);

  // Moves what can be moved now, within a bounded turn.
  virtual void progress() = 0;
  virtual bool complete(const Request& request) const = 0;
  virtual void connected(Connection connection) = 0;
  virtual void reported(Request&, int* /*sizes*/) {}

  Request& slot(uint64_t ordinal) { return requests_[ordinal % nccl::kMaxRequests]; }
  // Null and the reason in *rc when the comm takes no request.
  Request* post(Result* rc);
  void free_oldest();
  // The comm is broken: every later call says so, except for requests that are complete.
  void fail(Result rc, const std::string& why);
  void fail(Result rc);  // why has been said
  bool failed() const { return error_ != nccl::kSuccess; }
  uint64_t unfinished() const { return posted_ - reported_; }

  const WorldPtr world_;
  Fd control_;

  // Ordinals: posted_ >= reported_ >= freed_.
  uint64_t posted_ = 0;
  uint64_t reported_ = 0;
  uint64_t freed_ = 0;

 private:
  void note_test();

  Request requests_[nccl::kMaxRequests];
  std::unique_ptr<Setup> setup_;  // until the sockets are there
  Result error_ = nccl::kSuccess;
  void test_ended();
  Nanos last_test_ = 0;      // or when the first unfinished request was posted
  Nanos last_test_cpu_ = 0;  // of the thread, if it is measured
};

// Taken at the start of every call on a comm: in strict mode two threads at once are found out. The
// flag orders nothing on purpose: it must not hide a caller's race from a race detector.
class InCall {
 public:
  explicit InCall(Comm& comm)
      : comm_(comm),
        alone_(!comm.settings().strict || !comm.in_call.exchange(true, std::memory_order_relaxed)) {
  }
  ~InCall() {
    if (alone_) comm_.in_call.store(false, std::memory_order_relaxed);
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;
  bool alone() const { return alone_; }
  Result refuse() const;

 private:
  Comm& comm_;
  bool alone_;
};

}  // namespace tcpx_emu
