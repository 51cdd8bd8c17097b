#include "engine/notices_in.h"

namespace tcpx {

bool NoticesIn::fits(uint64_t bytes) const {
  return bytes <= shared_.options.max_notify_bytes && shared_.inbox->fits(bytes);
}

bool NoticesIn::reserve(uint64_t bytes) {
  return shared_.inbox->reserve(*share_, bytes);
}

void NoticesIn::does_not_come(uint64_t bytes) {
  shared_.inbox->give_back(*share_, bytes);
}

wire::NoticeVerdict NoticesIn::arrived(uint64_t id, MessageBytes&& bytes, bool reserved) {
  MutexLock lock(mu_);
  if (seen_.has(id)) {
    if (reserved) does_not_come(bytes.size());
    shared_.counters.notification_repeats.fetch_add(1);
    return wire::NoticeVerdict::kDelivered;
  }
  wire::NoticeVerdict verdict = push(std::move(bytes), reserved);
  if (verdict == wire::NoticeVerdict::kDelivered) seen_.add(id);
  return verdict;
}

wire::NoticeVerdict NoticesIn::arrived_behind(MessageBytes&& bytes, bool reserved) {
  return push(std::move(bytes), reserved);
}

wire::NoticeVerdict NoticesIn::push(MessageBytes&& bytes, bool reserved) {
  if (!shared_.inbox->push(share_, std::move(bytes), reserved)) return wire::NoticeVerdict::kNotNow;
  shared_.counters.notifications_in.fetch_add(1, std::memory_order_relaxed);
  return wire::NoticeVerdict::kDelivered;
}

}  // namespace tcpx
