#include "pool.h"

#include <algorithm>
#include <map>

#include "counters.h"
#include "log.h"

namespace tcpx_emu {

namespace {

tcpx::Mutex g_pools_mutex;
std::map<int, std::shared_ptr<Pool>>& pools() TCPX_REQUIRES(g_pools_mutex) {
  static auto& all = *new std::map<int, std::shared_ptr<Pool>>;  // outlives every thread
  return all;
}

}  // namespace

std::shared_ptr<Pool> Pool::of(Device& device, const Settings& settings) {
  tcpx::MutexLock lock(g_pools_mutex);
  std::shared_ptr<Pool>& pool = pools()[device.ordinal()];
  if (pool) return pool;
  Mapped memory = device.allocate(static_cast<size_t>(settings.pool_mb) << 20);
  if (memory.host == nullptr) {
    EMU_WARN("no memory for a bounce pool of %lld MiB", static_cast<long long>(settings.pool_mb));
    return nullptr;
  }
  pool = std::make_shared<Pool>(device, memory);
  return pool;
}

void Pool::forget_unused() {
  tcpx::MutexLock lock(g_pools_mutex);
  std::erase_if(pools(), [](const auto& entry) { return entry.second.use_count() <= 1; });
}

Pool::Pool(Device& device, const Mapped& memory) : device_(device), memory_(memory) {
  free_.resize(pages());
  // The lowest page on top.
  for (size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<uint32_t>(free_.size() - 1 - i);
  min_free_ = free_.size();
}

Pool::~Pool() {
  device_.release(memory_);
}

bool Pool::take(uint32_t* pages, size_t count) {
  tcpx::MutexLock lock(mutex_);
  take_back_late();
  if (free_.size() < count) return false;
  std::reverse_copy(free_.end() - static_cast<ptrdiff_t>(count), free_.end(), pages);
  free_.resize(free_.size() - count);
  min_free_ = std::min(min_free_, free_.size());
  show();
  return true;
}

void Pool::give(const uint32_t* pages, size_t count, Nanos delay) {
  if (count == 0) return;
  tcpx::MutexLock lock(mutex_);
  if (delay > 0) {
    late_.push_back({now_ns() + delay, {pages, pages + count}});
  } else {
    for (size_t i = count; i-- > 0;) free_.push_back(pages[i]);
  }
  take_back_late();
  show();
}

void Pool::take_back_late() {
  while (!late_.empty() && late_.front().when <= now_ns()) {
    free_.insert(free_.end(), late_.front().pages.begin(), late_.front().pages.end());
    late_.pop_front();
  }
}

void Pool::show_in(int nic) {
  tcpx::MutexLock lock(mutex_);
  shown_in_ |= 1u << nic;
  show();
}

void Pool::show() {
  for (int nic = 0; nic < TCPX_EMU_MAX_DEVICES; ++nic) {
    if (!(shown_in_ & (1u << nic))) continue;
    tcpx_emu_counters& c = counters(nic);
    counter(c.pool_pages).store(pages(), std::memory_order_relaxed);
    counter(c.pool_pages_free).store(free_.size(), std::memory_order_relaxed);
    counter(c.pool_pages_min_free).store(min_free_, std::memory_order_relaxed);
  }
}

}  // namespace tcpx_emu
