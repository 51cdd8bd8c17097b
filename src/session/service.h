// The service thread of an engine: handshakes (both sides), deferred tasks and the tick. Cold
// things only; no payload passes here. Never enters a loop while holding its lock. Strangers stay
// at the door (door.h); each turn is bounded, so that no crowd of guests keeps tasks, ticks or our
// own handshakes waiting.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "session/half_open.h"
#include "session/handshake.h"

namespace tcpx {

// All on the service thread.
class ServiceOwner {
 public:
  virtual ~ServiceOwner() = default;
  virtual void accepted(Handshake& handshake) = 0;                       // server side, done
  virtual void refused(const Handshake& handshake, bool timed_out) = 0;  // server side, failed
  // All places for handshakes were taken: so many of them were closed to make room; none: the
  // newcomer was.
  virtual void crowded(size_t evicted) = 0;
  virtual Nanos tick(Nanos now) = 0;  // when to be called again
  // It threw, and the thread goes on. What it was about is dropped, or tried again.
  virtual void failed(const char* what, const Status& status) noexcept = 0;
};

class Service {
 public:
  // `places`: for guests that have not proved themselves.
  Service(ServiceOwner& owner, uint32_t places) : owner_(owner), places_(places) {}
  ~Service();

  Status start();
  void stop();  // joins; tasks deferred before it have run

  void defer(std::function<void()> task);  // any thread
  void hurry();                            // any thread: tick now
  // Any thread: goes on with its handshake, on the service thread. False: too many wait for that.
  bool greet(Guest guest);
  // For threads that may outlive the service: writing 8 bytes there is hurry().
  Fd share_wake() const;
  using OnEnd = std::function<void(Handshake&, const Status&)>;
  void add_client(std::unique_ptr<Handshake> handshake, OnEnd on_end);  // service thread
  size_t half_open();  // guests that have not proved themselves; any thread

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
  void event(int fd);
  void run_tasks();
  void greet_some();
  void admit(Guest guest);
  size_t make_room(Nanos now);
  template <class F>
  void attempt(const char* what, F&& f) noexcept;
  void drop(int fd, const Status& status) noexcept;
  void step(int fd);
  void finish(int fd, bool timed_out);
  void remove(int fd);
  void expire(Nanos now);
  void watch(int fd, uint32_t events, bool add);

  ServiceOwner& owner_;
  const uint32_t places_;
  Fd epoll_, wake_;
  Fd knocked_;  // guests came, which is no reason to tick
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> serving_{0};  // handshakes with guests
  Mutex mu_;
  std::vector<std::function<void()>> tasks_ TCPX_GUARDED_BY(mu_);
  std::deque<Guest> guests_ TCPX_GUARDED_BY(mu_);

  // Service thread only:
  std::map<int, Entry> entries_;   // by fd
  std::vector<Visitor> visitors_;  // scratch of make_room
  Nanos next_expiry_ = kNever;     // no handshake's deadline is before it
  Nanos next_tick_ = 0;
  bool more_guests_ = false;
};

}  // namespace tcpx
