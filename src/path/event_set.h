// The sockets of a loop, and how its thread hears of them while nobody drives.
//
// Whoever drives waits on the inner epoll set. The loop's thread waits on an outer one that holds
// the inner one, one-shot, armed by whoever stops driving: so a hand-over costs no wake-up, and
// while somebody drives no event wakes the thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/fd.h"
#include "base/status.h"

struct epoll_event;

namespace tcpx {

class EventSet {
 public:
  static constexpr uint64_t kSignal = UINT64_MAX;  // what signal() is among the events

  Status open();

  // ---- any thread ----
  // Wakes whoever waits, or will.
  void signal();
  // Whether what happens wakes the loop's thread.
  void arm(bool on);

  // ---- the loop's thread ----
  // Until something has happened while armed; it is not any more then. False: never again.
  bool wait_armed();

  // ---- whoever drives ----
  // -1 or how many of `events` are filled in. A signal is taken.
  int wait(std::span<epoll_event> events, int timeout_ms);
  Status add(int fd, uint32_t index);
  void remove(int fd);
  // Room to send is an event for this socket, too. Off unless asked for: a peer that reads makes
  // room all the time, and each time would wake somebody who has nothing to send.
  void watch_room(int fd, uint32_t index, bool on);
  bool room_is_watched() const { return room_watched_ > 0; }

 private:
  Fd inner_, outer_, signal_;
  int room_watched_ = 0;  // sockets
};

}  // namespace tcpx
