// Content of one more transfer behind every timed stretch: who sends fills, who receives poisons
// before and checks after. No two of these transfers have a word in common, so bytes that are left
// from an earlier one are found.
#pragma once

#include <cstdint>
#include <cstring>

#include "support/pattern.h"

namespace tcpx::bench {

enum class Order : uint64_t { kFill, kPoison, kCheck };

// The first byte that is wrong, or -1.
inline int64_t obey(Order order, uint64_t transfer, void* memory, uint64_t bytes) {
  test::Pattern pattern(0xbe4c, transfer);
  switch (order) {
    case Order::kFill: pattern.fill(memory, bytes, 0); return -1;
    case Order::kPoison: std::memset(memory, 0xcd, bytes); return -1;
    case Order::kCheck: return pattern.mismatch(memory, bytes, 0);
  }
  return 0;
}

}  // namespace tcpx::bench
