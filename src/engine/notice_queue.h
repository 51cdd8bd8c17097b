// Notifications that arrived and wait for the application. One queue per engine, bounded.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/message_bytes.h"
#include "base/status.h"

namespace tcpx {

class NoticeQueue {
 public:
  // An application that never asks must not make the process grow without end.
  static constexpr size_t kMaxMessages = 1 << 20;
  static constexpr uint64_t kMaxBytes = 1ull << 30;

  // False: the queue is full.
  bool push(uint64_t peer, MessageBytes&& bytes);
  // Waits until the deadline; TCPX_IN_PROGRESS if nothing came, TCPX_BUFFER_TOO_SMALL leaves it.
  tcpx_code pop(Nanos deadline, uint64_t* peer, void* buffer, size_t* length);
  bool empty() const { return size_.load(std::memory_order_acquire) == 0; }
  void shut();  // wakes waiters; pops then give TCPX_SHUTDOWN once empty

 private:
  struct Entry {
    uint64_t peer;
    MessageBytes bytes;
  };
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  std::atomic<size_t> size_{0};  // of entries_
  uint64_t bytes_ = 0;
  bool shut_ = false;
};

}  // namespace tcpx
