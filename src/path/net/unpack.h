// Placing what an unpack queue describes, on the CPU: serves host memory, and is the oracle that
// GPU kernels are compared with.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "path/net/nccl_net_abi.h"

namespace tcpx::net {

// A list of memory ranges seen as one contiguous range. Copies in any order of offsets; neighbours
// in time are usually neighbours in place, so it remembers where it was.
class ScatterList {
 public:
  explicit ScatterList(std::span<const iovec> parts) : parts_(parts) {}
  void put(uint64_t offset, const uint8_t* from, uint64_t length);
  void get(uint64_t offset, uint8_t* to, uint64_t length);
  // The memory of [offset, offset + length) if it is in one piece, else nullptr.
  uint8_t* contiguous(uint64_t offset, uint64_t length);

 private:
  // Moves to the part that holds `offset`.
  void seek(uint64_t offset);
  template <class F>
  void each_part(uint64_t offset, uint64_t length, F&& f);

  std::span<const iovec> parts_;
  size_t at_ = 0;
  uint64_t start_ = 0;  // offset of parts_[at_]
};

// Whether the fragments cover [0, bytes) exactly once and lie within a pool of `pool_bytes` (0: not
// known). A plugin that says otherwise is broken, and nothing it says may be applied.
bool covers_exactly(std::span<const nccl::Fragment> fragments, uint64_t bytes, uint64_t pool_bytes);

// Bytes of the pool to [offset, ...) of `into`.
void unpack(std::span<const nccl::Fragment> fragments, const uint8_t* pool, ScatterList& into,
            uint64_t offset);

}  // namespace tcpx::net
