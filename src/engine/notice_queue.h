// Notifications that arrived and wait for the application. One queue per engine, bounded: an
// application that never asks must not make the process grow without end.
//
// Peers share it: each may hold as much as is still free. So a peer that fills it alone gets half,
// n of them get an (n+1)-th each, and as much is always left for one that holds nothing yet. Who
// finds no room is told to come again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>

#include "base/clock.h"
#include "base/message_bytes.h"
#include "base/mutex.h"
#include "base/status.h"

namespace tcpx {

// What one peer holds of the queue. Guarded by the queue.
struct InboxShare {
  explicit InboxShare(uint64_t of_peer) : peer(of_peer) {}
  const uint64_t peer;
  uint64_t held = 0;
};

class NoticeQueue {
 public:
  // A message takes its bytes and this, for its place in the queue and in the allocator.
  static constexpr uint64_t kEntryBytes = 128;

  explicit NoticeQueue(uint64_t capacity) : capacity_(capacity) {}

  // Whether so long a message can ever be taken.
  bool fits(uint64_t bytes) const { return bytes <= capacity_ - kEntryBytes; }
  // Takes room for a message whose bytes are still to come. False: there is none now.
  bool reserve(InboxShare& share, uint64_t bytes);
  void give_back(InboxShare& share, uint64_t bytes);  // it does not come
  // `reserved`: there is room for it already. False: there is none now.
  bool push(const std::shared_ptr<InboxShare>& share, MessageBytes&& bytes, bool reserved);
  // Waits until the deadline; TCPX_IN_PROGRESS if nothing came, TCPX_BUFFER_TOO_SMALL leaves it.
  tcpx_code pop(Nanos deadline, uint64_t* peer, void* buffer, size_t* length);
  bool empty() const { return size_.load(std::memory_order_acquire) == 0; }
  void shut();  // wakes waiters; pops then give TCPX_SHUTDOWN once empty

 private:
  struct Entry {
    std::shared_ptr<InboxShare> share;
    MessageBytes bytes;
  };
  bool reserve_locked(InboxShare& share, uint64_t bytes) TCPX_REQUIRES(mu_);
  void give_back_locked(InboxShare& share, uint64_t bytes) TCPX_REQUIRES(mu_);

  const uint64_t capacity_;
  Mutex mu_;
  std::condition_variable changed_;
  std::deque<Entry> entries_ TCPX_GUARDED_BY(mu_);
  std::atomic<size_t> size_{0};             // of entries_
  uint64_t held_ TCPX_GUARDED_BY(mu_) = 0;  // by all shares
  bool shut_ TCPX_GUARDED_BY(mu_) = false;
};

}  // namespace tcpx
