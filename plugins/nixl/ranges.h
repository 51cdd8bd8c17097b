// Registered ranges. NIXL refuses a peer whose description of a range differs from the one it
// holds, so a range has one region id for the engine's life: registered twice it is the same
// region, and deregistered it is suspended, not forgotten.
#pragma once

#include <tcpx/tcpx.h>

#include <cstdint>
#include <list>
#include <map>
#include <utility>

#include "base/mutex.h"

namespace tcpx_nixl {

class Ranges {
 public:
  explicit Ranges(tcpx_engine* engine) : engine_(engine) {}

  tcpx_code add(uintptr_t base, uint64_t length, tcpx_region* region);
  // A fence when it was the last registration of the range.
  tcpx_code remove(uintptr_t base, uint64_t length);

 private:
  // Buffers come and go at ever new addresses: the oldest suspended range is forgotten. A peer that
  // still has its description is then refused when the range comes back.
  static constexpr size_t kKeptSuspended = 1 << 16;

  using Key = std::pair<uintptr_t, uint64_t>;
  struct Range {
    tcpx_region region = 0;
    size_t users = 0;                      // 0: suspended
    std::list<Key>::iterator suspended{};  // while suspended
  };
  void keep_suspended_locked(const Key& key, Range& range) TCPX_REQUIRES(mu_);

  tcpx_engine* const engine_;
  tcpx::Mutex mu_;
  std::map<Key, Range> ranges_ TCPX_GUARDED_BY(mu_);
  std::list<Key> suspended_ TCPX_GUARDED_BY(mu_);  // oldest first
};

}  // namespace tcpx_nixl
