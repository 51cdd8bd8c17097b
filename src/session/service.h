// The service thread of an engine: listening sockets, handshakes (both sides), deferred tasks and
// the tick. Cold things only; no payload passes here. Never enters a loop while holding its lock.
// Each turn is bounded, so that no crowd at the door keeps tasks, ticks or our own handshakes
// waiting.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "session/half_open.h"
#include "session/handshake.h"

namespace tcpx {

class ServiceOwner : public HandshakeHost {
 public:
  // All on the service thread.
  virtual void accepted(Handshake& handshake) = 0;                       // server side, done
  virtual void refused(const Handshake& handshake, bool timed_out) = 0;  // server side, failed
  // All places for half-open connections were taken: so many of them were closed to make room;
  // none: the newcomer was.
  virtual void crowded(size_t evicted) = 0;
  // accept() failed with `err` and is left alone for `pause`.
  virtual void cannot_accept(int err, Nanos pause) = 0;
  virtual Nanos tick(Nanos now) = 0;  // when to be called again
  // It threw, and the thread goes on. What it was about is dropped, or tried again.
  virtual void failed(const char* what, const Status& status) noexcept = 0;
};

class Service {
 public:
  struct Settings {
    Nanos handshake_timeout;
    uint32_t max_half_open;
  };
  Service(ServiceOwner& owner, Settings settings) : owner_(owner), settings_(settings) {}
  ~Service();

  Status start(std::vector<Fd> listeners);
  void stop();  // joins; tasks deferred before it have run

  void defer(std::function<void()> task);  // any thread
  void hurry();                            // any thread: tick now
  // For threads that may outlive the service: writing 8 bytes there is hurry().
  Fd share_wake() const;
  using OnEnd = std::function<void(Handshake&, const Status&)>;
  void add_client(std::unique_ptr<Handshake> handshake, OnEnd on_end);  // service thread
  uint32_t half_open() const { return half_open_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::unique_ptr<Handshake> handshake;
    OnEnd on_end;          // client side
    uint32_t watched = 0;  // epoll's events
    // Server side, as half_open.h has it:
    Source source{};
    Standing standing = Standing::kSilent;
    Nanos since = 0;
  };
  void run();
  void event(int fd, int* accepts);
  void run_tasks();
  bool is_listener(int fd) const;
  void accept_some(int listener, int* budget);
  void admit(Fd fd, const wire::Address& remote);
  size_t make_room(Nanos now);
  void stop_accepting(int err);
  void listen_again();
  template <class F>
  void attempt(const char* what, F&& f) noexcept;
  void drop(int fd, const Status& status) noexcept;
  void step(int fd);
  void finish(int fd, bool timed_out);
  void remove(int fd);
  void expire(Nanos now);
  void watch(int fd, uint32_t events, bool add);
  Nanos next_deadline() const;

  ServiceOwner& owner_;
  const Settings settings_;
  Fd epoll_, wake_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> half_open_{0};
  std::mutex mu_;
  std::vector<std::function<void()>> tasks_;

  // Service thread only:
  std::vector<Fd> listeners_;
  std::map<int, Entry> entries_;   // by fd
  std::vector<Visitor> visitors_;  // scratch of make_room
  Nanos next_expiry_ = kNever;     // no handshake's deadline is before it
  Nanos next_tick_ = 0;
  Nanos listen_at_ = kNever;  // when to listen again; kNever: we do
  Nanos accept_pause_ = 0;    // the last one
};

}  // namespace tcpx
