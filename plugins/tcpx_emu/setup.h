// How two ends come to have a control socket and data sockets between them. A thread of its own
// does it, since the calls that start it must not block; every step of it ends at a deadline or
// when the owner is destroyed.
//
// As in the plugin: the control socket first, then the data sockets from the last to the first; for
// every data socket the acceptor programs a flow-steering rule and both tell each other over the
// control socket how it went: done, try again with a new connection, or give up.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sockets.h"
#include "world.h"

namespace tcpx_emu {

// What listen() writes and connect() reads; travels between processes as bytes.
struct Handle {
  uint64_t magic;
  uint64_t nonce;  // connections that do not name it are not for us
  SocketAddress data;
  SocketAddress control;
  uint32_t sockets;  // the listener's settings decide
  uint32_t flags;    // kRecvSync
  // Of the process that polls connect() with this buffer.
  uint64_t connect_process;
  uint64_t connect_id;  // 0: not begun; with TCPX_EMU_HANDLE=pointer where the number is
};
// Engines check a peer's handle before they use it (src/path/net/handle_check.cc).
static_assert(offsetof(Handle, data) == 16 && offsetof(Handle, control) == 44 &&
              offsetof(Handle, sockets) == 72 && offsetof(Handle, connect_process) == 80 &&
              sizeof(Handle) == 96);
inline constexpr uint64_t kHandleMagic = 0x31554d4558504354;  // "TCPXEMU1"
inline constexpr uint32_t kFlagRecvSync = 1, kFlagAcks = 2;

struct Connection {
  Fd control;
  std::vector<Fd> data;
  uint32_t peer_flags = 0;
};

class Setup {
 public:
  enum class State { kRunning, kReady, kFailed };

  // Steps of the work that wait can be called off; it returns "" or what went wrong.
  using Work = std::function<std::string(const Wait& wait, Connection* out)>;
  explicit Setup(const Work& work);
  ~Setup() { job_->wait.call_off(); }
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  State state() const { return job_->state; }
  Connection take() { return std::move(job_->connection); }  // once kReady
  const std::string& error() const { return job_->error; }   // once kFailed

 private:
  struct Job {
    Wait wait;
    Connection connection;
    std::string error;
    std::atomic<State> state{State::kRunning};
  };
  // Also the thread's, which may end a moment later than we do.
  std::shared_ptr<Job> job_ = std::make_shared<Job>();
};

// The two kinds of work.
std::string connect_sockets(World& world, int device, const Handle& handle, const Wait& wait,
                            Connection* out);
std::string accept_sockets(World& world, int device, const Handle& handle, int control_listener,
                           int data_listener, const Wait& wait, Connection* out);

uint32_t flags_of(const Settings& settings);
uint64_t random_word();

}  // namespace tcpx_emu
