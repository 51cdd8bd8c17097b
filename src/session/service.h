// The service thread of an engine: listening sockets, handshakes (both sides), deferred tasks and
// the tick. Cold things only; no payload passes here. Never enters a loop while holding its lock.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "session/handshake.h"

namespace tcpx {

class ServiceOwner : public HandshakeHost {
 public:
  // All on the service thread.
  virtual void accepted(Handshake& handshake) = 0;                       // server side, done
  virtual void refused(const Handshake& handshake, bool timed_out) = 0;  // server side, failed
  virtual void overloaded() = 0;      // a connection was closed: too many half-open
  virtual Nanos tick(Nanos now) = 0;  // when to be called again
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
  using OnEnd = std::function<void(Handshake&, const Status&)>;
  void add_client(std::unique_ptr<Handshake> handshake, OnEnd on_end);  // service thread
  uint32_t half_open() const { return half_open_.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::unique_ptr<Handshake> handshake;
    OnEnd on_end;
  };
  void run();
  void run_tasks();
  void accept_all(int listener);
  void step(int fd);
  void finish(int fd, bool timed_out);
  void expire(Nanos now);
  void watch(int fd, bool write, bool add);
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
  std::map<int, Entry> entries_;  // by fd
  Nanos next_tick_ = 0;
};

}  // namespace tcpx
