// The door of an engine: a thread of its own accepts connections, keeps them until they have said a
// hello that only a holder of the key can have made, and answers that. Strangers get no further:
// they cost what happens here, and nobody who is inside waits for them.
#pragma once

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "session/answer_budget.h"
#include "session/greeting.h"
#include "session/half_open.h"
#include "session/handshake.h"

namespace tcpx {

// All on the door's thread.
class DoorOwner {
 public:
  virtual ~DoorOwner() = default;
  // It goes on from here. False: there is no room inside.
  virtual bool enter(Guest guest) = 0;
  // What it said is not believed.
  virtual void refused(const wire::Address& remote, const Status& status) = 0;
  // It said nothing that could be judged: gone again, or late.
  virtual void left() = 0;
  virtual void late(const wire::Address& remote) = 0;
  // All places were taken: so many visitors were closed to make room; none: the newcomer was.
  virtual void crowded(size_t evicted) = 0;
  // accept() failed with `err` and is left alone for `pause`.
  virtual void cannot_accept(int err, Nanos pause) = 0;
  // It threw, and the thread goes on. What it was about is dropped, or tried again.
  virtual void failed(const char* what, const Status& status) noexcept = 0;
};

class Door {
 public:
  struct Settings {
    Nanos handshake_timeout;
    uint32_t places;
    uint64_t salt;  // random
  };
  Door(DoorOwner& owner, HandshakeHost& host, Settings settings);
  ~Door();

  Status start(std::vector<Fd> listeners);
  void stop();  // joins
  uint32_t visitors() const { return visitors_.load(std::memory_order_relaxed); }

 private:
  // Of a visitor whose hello is not here yet.
  struct Place {
    Fd fd;
    uint32_t turn = 0;  // how often the place was taken: events of the one before are not its own
    wire::Address remote;
    Nanos since = 0, deadline = 0;
    size_t got = 0;
    std::array<uint8_t, wire::kHelloBytes> hello;
  };

  void run();
  void handle(uint64_t event);
  template <class F>
  void attempt(const char* what, F&& f) noexcept;
  void accept_some(int listener);
  bool has_room(Nanos now);
  void receive(Fd fd, const wire::Address& remote);
  void seat(Fd fd, const wire::Address& remote, std::span<const uint8_t> said, Nanos now);
  void hear(Place& place);
  void judge(Fd fd, const wire::Address& remote, auth::HelloBytes hello, Nanos deadline);
  void enter(Fd fd, const wire::Address& remote, const Greeting& greeting, Nanos deadline);
  void answer(const Fd& fd, const wire::Challenge& refusal);
  uint32_t index_of(const Place& place) const {
    return static_cast<uint32_t>(&place - places_.data());
  }
  Fd leave(Place& place);  // its socket, which closes if nobody wants it
  size_t make_room(Nanos now);
  void expire(Nanos now);
  void stop_accepting(int err);
  void listen_again();
  bool watch(int fd, uint32_t events, uint64_t name, bool add);
  Nanos next_deadline() const { return std::min(next_expiry_, listen_at_); }

  DoorOwner& owner_;
  HandshakeHost& host_;
  const Settings settings_;
  Fd epoll_, wake_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> visitors_{0};

  // Its thread only:
  std::vector<Fd> listeners_;
  std::vector<Place> places_;     // all that were ever taken at once
  std::vector<uint32_t> free_;    // of them
  std::vector<Visitor> scratch_;  // of make_room
  AnswerBudget answers_;
  Nanos next_expiry_ = kNever;  // no visitor's deadline is before it
  Nanos listen_at_ = kNever;    // when to listen again; kNever: we do
  Nanos accept_pause_ = 0;      // the last one
};

}  // namespace tcpx
