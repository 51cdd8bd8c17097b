#include "engine/notice_queue.h"

#include <chrono>
#include <cstring>

#include "base/wait.h"

namespace tcpx {

bool NoticeQueue::push(uint64_t peer, MessageBytes&& bytes) {
  std::lock_guard lock(mu_);
  if (entries_.size() >= kMaxMessages || bytes.size() > kMaxBytes - bytes_) return false;
  bytes_ += bytes.size();
  entries_.push_back({peer, std::move(bytes)});
  size_.store(entries_.size(), std::memory_order_release);
  changed_.notify_one();
  return true;
}

tcpx_code NoticeQueue::pop(Nanos deadline, uint64_t* peer, void* buffer, size_t* length) {
  std::unique_lock lock(mu_);
  wait_until(changed_, lock, deadline, [&] { return !entries_.empty() || shut_; });
  if (entries_.empty()) return shut_ ? TCPX_SHUTDOWN : TCPX_IN_PROGRESS;
  Entry& entry = entries_.front();
  size_t room = *length;
  *length = entry.bytes.size();
  if (entry.bytes.size() > room) return TCPX_BUFFER_TOO_SMALL;
  if (!entry.bytes.empty()) memcpy(buffer, entry.bytes.data(), entry.bytes.size());
  if (peer != nullptr) *peer = entry.peer;
  bytes_ -= entry.bytes.size();
  entries_.pop_front();
  size_.store(entries_.size(), std::memory_order_release);
  return TCPX_OK;
}

void NoticeQueue::shut() {
  std::lock_guard lock(mu_);
  shut_ = true;
  changed_.notify_all();
}

}  // namespace tcpx
