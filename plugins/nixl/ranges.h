// Registered ranges. NIXL refuses a peer whose description of a range differs from the one it
// holds, so a range has one region id for the engine's life: registered twice it is the same
// region, and deregistered it is suspended, not forgotten.
#pragma once

#include <tcpx/tcpx.h>

#include <compare>
#include <cstdint>
#include <list>
#include <map>

#include "guarded.h"
#include "nixl_abi.h"

namespace tcpx_nixl {

// Memory as it was registered. An address that was one GPU's memory may be another's later on, or
// the host's: that is another range.
struct Range {
  uintptr_t base = 0;
  uint64_t length = 0;
  nixl_mem_t type = DRAM_SEG;
  uint64_t gpu = 0;  // CUDA's number; 0 for host memory, whatever number NIXL's user gave that
  auto operator<=>(const Range&) const = default;
};
inline Range range_of(uintptr_t base, uint64_t length, nixl_mem_t type, uint64_t device) {
  return {base, length, type, type == VRAM_SEG ? device : 0};
}

class Ranges {
 public:
  explicit Ranges(tcpx_engine* engine) : engine_(engine) {}

  tcpx_code add(const Range& range, tcpx_region* region);
  // A fence when it was the last registration of the range.
  tcpx_code remove(const Range& range);
  // As remove(), and its id does not come back.
  void forget(const Range& range);

 private:
  // Buffers come and go at ever new addresses: the oldest suspended range is forgotten. A peer that
  // still has its description is then refused when the range comes back.
  static constexpr size_t kKeptSuspended = 1 << 16;

  struct Use {
    tcpx_region region = 0;
    size_t users = 0;                        // 0: suspended
    std::list<Range>::iterator suspended{};  // while suspended
  };
  tcpx_code register_new(const Range& range, tcpx_region* region) const;
  void keep_suspended_locked(const Range& range, Use& use) TCPX_REQUIRES(mu_);

  tcpx_engine* const engine_;
  tcpx::Mutex mu_;
  std::map<Range, Use> ranges_ TCPX_GUARDED_BY(mu_);
  std::list<Range> suspended_ TCPX_GUARDED_BY(mu_);  // oldest first
};

}  // namespace tcpx_nixl
