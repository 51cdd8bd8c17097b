// Lanes by index, as bits: what a peer says about them again and again takes no more room.
#pragma once

#include <cstdint>

#include "wire/handshake.h"

namespace tcpx {

class LaneBits {
 public:
  bool has(uint32_t index) const { return (bits_ >> index & 1) != 0; }
  bool empty() const { return bits_ == 0; }
  void add(uint32_t index) { bits_ |= uint64_t{1} << index; }
  uint32_t take_first() {
    auto index = static_cast<uint32_t>(__builtin_ctzll(bits_));
    bits_ &= bits_ - 1;
    return index;
  }

 private:
  static_assert(wire::kMaxLanes <= 64);
  uint64_t bits_ = 0;
};

}  // namespace tcpx
