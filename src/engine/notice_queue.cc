#include "engine/notice_queue.h"

#include <chrono>
#include <cstring>

#include "base/wait.h"

namespace tcpx {

bool NoticeQueue::reserve_locked(InboxShare& share, uint64_t bytes) {
  if (!fits(bytes)) return false;
  uint64_t cost = bytes + kEntryBytes, free = capacity_ - held_;
  // The longest ones need an empty queue.
  if (held_ > 0 && (cost > free || share.held > free - cost)) return false;
  share.held += cost;
  held_ += cost;
  return true;
}

void NoticeQueue::give_back_locked(InboxShare& share, uint64_t bytes) {
  share.held -= bytes + kEntryBytes;
  held_ -= bytes + kEntryBytes;
}

bool NoticeQueue::reserve(InboxShare& share, uint64_t bytes) {
  MutexLock lock(mu_);
  return reserve_locked(share, bytes);
}

void NoticeQueue::give_back(InboxShare& share, uint64_t bytes) {
  MutexLock lock(mu_);
  give_back_locked(share, bytes);
}

bool NoticeQueue::push(const std::shared_ptr<InboxShare>& share, MessageBytes&& bytes,
                       bool reserved) {
  MutexLock lock(mu_);
  if (!reserved && !reserve_locked(*share, bytes.size())) return false;
  entries_.push_back({share, std::move(bytes)});
  size_.store(entries_.size(), std::memory_order_release);
  changed_.notify_one();
  return true;
}

tcpx_code NoticeQueue::pop(Nanos deadline, uint64_t* peer, void* buffer, size_t* length) {
  MutexLock lock(mu_);
  wait_until(changed_, lock, deadline,
             [&]() TCPX_REQUIRES(mu_) { return !entries_.empty() || shut_; });
  if (entries_.empty()) return shut_ ? TCPX_SHUTDOWN : TCPX_IN_PROGRESS;
  Entry& entry = entries_.front();
  size_t room = *length;
  *length = entry.bytes.size();
  if (entry.bytes.size() > room) return TCPX_BUFFER_TOO_SMALL;
  if (!entry.bytes.empty()) memcpy(buffer, entry.bytes.data(), entry.bytes.size());
  if (peer != nullptr) *peer = entry.share->peer;
  give_back_locked(*entry.share, entry.bytes.size());
  entries_.pop_front();
  size_.store(entries_.size(), std::memory_order_release);
  return TCPX_OK;
}

void NoticeQueue::shut() {
  MutexLock lock(mu_);
  shut_ = true;
  changed_.notify_all();
}

}  // namespace tcpx
