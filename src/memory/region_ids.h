// Ids of regions: 64 bits, slot of the table in the low 22, generation in the others.
//
// Whoever has been told of a region knows its id and nothing about any other: the generations of a
// slot are its numbers 1, 2, 3 ... in an order that only this table knows (a keyed permutation), so
// none comes twice and the next one cannot be told from those before. How often a peer may guess:
// engine/refusal_budget.h.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.h"

namespace tcpx {

class RegionIds {
 public:
  static constexpr uint32_t kSlotBits = 22;
  static constexpr uint32_t kSlots = 1u << kSlotBits;
  static constexpr uint64_t kGenerations = uint64_t{1} << (64 - kSlotBits);

  static uint32_t slot_of(uint64_t id) { return static_cast<uint32_t>(id & (kSlots - 1)); }
  static uint64_t generation_of(uint64_t id) { return id >> kSlotBits; }

  // The next id of a slot that has given `*given` so far, which is counted on. Never 0. TCPX_LIMIT:
  // it has given them all.
  Status next(uint32_t slot, uint64_t* given, uint64_t* id);

 private:
  Status permute(uint32_t slot, uint64_t number, uint64_t* out) const;

  std::array<uint8_t, 32> key_{};
  bool has_key_ = false;
};

}  // namespace tcpx
