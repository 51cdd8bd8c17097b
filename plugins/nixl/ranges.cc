#include "ranges.h"

namespace tcpx_nixl {

tcpx_code Ranges::add(uintptr_t base, uint64_t length, tcpx_region* region) {
  tcpx::MutexLock lock(mu_);
  Key key{base, length};
  auto found = ranges_.find(key);
  if (found == ranges_.end()) {
    Range range;
    tcpx_code code = tcpx_register(engine_, reinterpret_cast<void*>(base), length,
                                   TCPX_REMOTE_READ | TCPX_REMOTE_WRITE, &range.region);
    if (code != TCPX_OK) return code;
    found = ranges_.emplace(key, range).first;
  } else if (found->second.users == 0) {
    Range& range = found->second;
    tcpx_code code = tcpx_resume(engine_, range.region);
    suspended_.erase(range.suspended);
    if (code != TCPX_OK) {
      ranges_.erase(found);
      return code;
    }
  }
  ++found->second.users;
  *region = found->second.region;
  return TCPX_OK;
}

tcpx_code Ranges::remove(uintptr_t base, uint64_t length) {
  tcpx::MutexLock lock(mu_);
  Key key{base, length};
  auto found = ranges_.find(key);
  if (found == ranges_.end() || found->second.users == 0) return TCPX_NOT_FOUND;
  if (--found->second.users > 0) return TCPX_OK;
  tcpx_code code = tcpx_suspend(engine_, found->second.region);
  if (code == TCPX_OK)
    keep_suspended_locked(key, found->second);
  else
    ranges_.erase(found);  // its memory may still be in use: the id must not come back
  return code;
}

void Ranges::keep_suspended_locked(const Key& key, Range& range) {
  range.suspended = suspended_.insert(suspended_.end(), key);
  if (suspended_.size() <= kKeptSuspended) return;
  auto oldest = ranges_.find(suspended_.front());
  (void)tcpx_deregister(engine_, oldest->second.region);
  ranges_.erase(oldest);
  suspended_.pop_front();
}

}  // namespace tcpx_nixl
