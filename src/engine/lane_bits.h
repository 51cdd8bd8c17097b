// Lanes by index, as bits: what is said about them again and again takes no more room.
#pragma once

#include <bit>
#include <cstdint>

#include "wire/handshake.h"

namespace tcpx {

inline constexpr uint32_t kNoLane = UINT32_MAX;

class LaneBits {
 public:
  constexpr LaneBits() = default;
  static constexpr LaneBits all() { return LaneBits(~uint64_t{0}); }
  static constexpr LaneBits only(uint32_t index) { return LaneBits(uint64_t{1} << index); }

  bool has(uint32_t index) const { return (bits_ >> index & 1) != 0; }
  bool empty() const { return bits_ == 0; }
  uint32_t count() const { return static_cast<uint32_t>(std::popcount(bits_)); }
  void add(uint32_t index) { bits_ |= uint64_t{1} << index; }
  void remove(uint32_t index) { bits_ &= ~(uint64_t{1} << index); }
  uint32_t take_first() {
    auto index = static_cast<uint32_t>(std::countr_zero(bits_));
    bits_ &= bits_ - 1;
    return index;
  }
  LaneBits operator&(LaneBits other) const { return LaneBits(bits_ & other.bits_); }
  bool operator==(const LaneBits&) const = default;

 private:
  static_assert(wire::kMaxLanes <= 64);
  explicit constexpr LaneBits(uint64_t bits) : bits_(bits) {}
  uint64_t bits_ = 0;
};

}  // namespace tcpx
