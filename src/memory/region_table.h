// Registered memory by id. The owner resolves what a peer names; a peer never names an address.
//
// Rules:
//  - add / retire / recycle / describe: any thread (they take the table's lock);
//  - resolve: no lock. The caller must be inside a loop's exclusive section (path/loop.h), and
//    recycle must come after a fence through all loops, so that no resolver still uses the slot.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "wire/frame.h"

namespace tcpx {

// A region id as the API shows it: generation in the high half (never 0), slot in the low half.
constexpr uint64_t make_region_id(uint32_t slot, uint32_t generation) {
  return uint64_t{generation} << 32 | slot;
}
constexpr uint32_t region_slot(uint64_t id) {
  return static_cast<uint32_t>(id);
}
constexpr uint32_t region_generation(uint64_t id) {
  return static_cast<uint32_t>(id >> 32);
}

struct RegionView {
  uint8_t* base = nullptr;
  uint64_t length = 0;
  uint32_t access = 0;
};

class RegionTable {
 public:
  RegionTable();
  ~RegionTable();

  Status add(void* base, uint64_t length, uint32_t access, uint64_t* id);
  // The id names nothing from now on; the slot is not reused before recycle().
  Status retire(uint64_t id);
  void recycle(uint64_t id);
  // Instead of recycle: the id can come back, for the same memory, unless it is in use now or is
  // named by a peer before.
  void suspend(uint64_t id, bool in_use);
  Status resume(uint64_t id);  // TCPX_BUSY: used, and not forgotten
  void forget_refusals(uint64_t id);
  bool drop_suspended(uint64_t id);  // true: it was suspended, its slot is free now
  Status describe(uint64_t id, RegionView* out) const;
  bool is_live(uint64_t id) const;  // no lock
  size_t size() const;
  // A live region that contains the range. Looks at every region: for set-up, not for every chunk.
  bool find_extent(const uint8_t* base, uint64_t length, RegionView* out) const;

  // TCPX_OK and the memory, or NOT_FOUND, STALE_REGION, ACCESS_DENIED, OUT_OF_RANGE.
  tcpx_code resolve(const wire::Piece& piece, uint32_t access, uint8_t** out) const;

 private:
  struct Slot {
    std::atomic<uint32_t> generation{0};            // 0: names nothing
    uint32_t next_generation = 0;                   // under mu_
    uint32_t suspended = 0;                         // under mu_: the generation that may come back
    mutable std::atomic<uint32_t> last_refused{0};  // a generation that peers use still
    RegionView view;                                // written before generation is published
  };
  static constexpr uint32_t kBlockSlots = 1024;
  static constexpr uint32_t kMaxBlocks = 4096;  // 4 million regions

  Slot* slot_at(uint32_t index) const;

  mutable std::mutex mu_;
  std::unique_ptr<std::atomic<Slot*>[]> blocks_;  // blocks never move: resolvers hold pointers
  uint32_t used_slots_ = 0;
  size_t live_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace tcpx
