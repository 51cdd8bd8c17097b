// Bytes that arrived in pieces, anywhere in a pool of pages: what is unpacked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tcpx {

struct Fragment {
  uint32_t source = 0;  // in the pool
  uint32_t length = 0;
  uint64_t destination = 0;  // in what they make up together
};

inline constexpr size_t kMostFragments = 2048;

// Whether the fragments cover [0, bytes) exactly once and lie within a pool of `pool_bytes` (0: not
// known). Whoever says otherwise is broken, and nothing it says may be applied.
bool covers_exactly(std::span<const Fragment> fragments, uint64_t bytes, uint64_t pool_bytes);

}  // namespace tcpx
