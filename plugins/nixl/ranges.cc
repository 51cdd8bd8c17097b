#include "ranges.h"

namespace tcpx_nixl {

namespace {

constexpr uint32_t kAccess = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;

}  // namespace

// Where host memory lies is found out all the same; a GPU's has to be that GPU's.
tcpx_code Ranges::register_new(const Range& range, tcpx_region* region) const {
  void* base = reinterpret_cast<void*>(range.base);
  if (range.type == DRAM_SEG) return tcpx_register(engine_, base, range.length, kAccess, region);
  tcpx_register_args args{};
  args.struct_size = sizeof args;
  args.access = kAccess;
  args.memory = TCPX_MEMORY_CUDA;
  args.device = static_cast<uint32_t>(range.gpu);
  return tcpx_register_as(engine_, base, range.length, &args, region);
}

tcpx_code Ranges::add(const Range& range, tcpx_region* region) {
  tcpx::MutexLock lock(mu_);
  auto found = ranges_.find(range);
  if (found == ranges_.end()) {
    Use use;
    if (tcpx_code code = register_new(range, &use.region); code != TCPX_OK) return code;
    found = ranges_.emplace(range, use).first;
  } else if (found->second.users == 0) {
    // Refused: other memory lies there now. It stays suspended, and may be right another time.
    Use& use = found->second;
    if (tcpx_code code = tcpx_resume(engine_, use.region); code != TCPX_OK) return code;
    suspended_.erase(use.suspended);
  }
  ++found->second.users;
  *region = found->second.region;
  return TCPX_OK;
}

tcpx_code Ranges::remove(const Range& range) {
  tcpx::MutexLock lock(mu_);
  auto found = ranges_.find(range);
  if (found == ranges_.end() || found->second.users == 0) return TCPX_NOT_FOUND;
  if (--found->second.users > 0) return TCPX_OK;
  tcpx_code code = tcpx_suspend(engine_, found->second.region);
  if (code == TCPX_OK)
    keep_suspended_locked(range, found->second);
  else
    ranges_.erase(found);  // its memory may still be in use: the id must not come back
  return code;
}

void Ranges::forget(const Range& range) {
  tcpx::MutexLock lock(mu_);
  auto found = ranges_.find(range);
  if (found == ranges_.end() || found->second.users == 0 || --found->second.users > 0) return;
  (void)tcpx_deregister(engine_, found->second.region);
  ranges_.erase(found);
}

void Ranges::keep_suspended_locked(const Range& range, Use& use) {
  use.suspended = suspended_.insert(suspended_.end(), range);
  if (suspended_.size() <= kKeptSuspended) return;
  auto oldest = ranges_.find(suspended_.front());
  (void)tcpx_deregister(engine_, oldest->second.region);
  ranges_.erase(oldest);
  suspended_.pop_front();
}

}  // namespace tcpx_nixl
