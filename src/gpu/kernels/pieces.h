// What a kernel of ours is told: pieces of memory that make up the beginning of a slot. By value,
// so that a launch needs no copy and no memory of its own. Host and device compile this.
#pragma once

#include <cstdint>

namespace tcpx::gpu {

struct Piece {
  uint64_t address;
  uint32_t offset;  // in the slot; ascending, without gaps
  uint32_t bytes;
};

// A kernel takes 4 KiB of parameters on every driver.
struct Pieces {
  static constexpr uint32_t kMost = 254;
  uint64_t slot;
  uint32_t count;
  uint32_t bytes;  // of the slot
  Piece piece[kMost];
};
static_assert(sizeof(Piece) == 16 && sizeof(Pieces) <= 4096);

inline constexpr unsigned kThreadsPerBlock = 512;

}  // namespace tcpx::gpu
