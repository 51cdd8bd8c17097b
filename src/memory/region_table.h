// Registered memory by id. The owner resolves what a peer names; a peer never names an address.
//
// Rules:
//  - add / retire / recycle / describe and the like: any thread (they take the table's lock);
//  - resolve: no lock. The caller must be inside a loop's exclusive section (path/loop.h), and
//    recycle, resume and the deletion of a list of grants must come after a fence through all
//    loops, so that no resolver still uses the slot or the list.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "memory/place.h"
#include "memory/region_extent.h"
#include "memory/region_ids.h"
#include "wire/frame.h"

namespace tcpx {

struct RegionView {
  uint8_t* base = nullptr;
  uint64_t length = 0;
  uint32_t access = 0;
  Place place{};
};

// Memory that a peer has named and may use.
struct Resolved {
  uint8_t* at = nullptr;
  Place place{};
  RegionExtent region{};
};

// Peers that may use a region, sorted.
using Grants = std::vector<uint64_t>;

// Who names a region, and how old its transfer is: the epoch of this engine that it knew when it
// was posted (engine/shared.h).
struct RegionUser {
  uint64_t peer = 0;
  uint64_t epoch = 0;
};

class RegionTable {
 public:
  RegionTable();
  ~RegionTable();

  // Without `grants` every peer may use it.
  Status add(const RegionView& region, uint64_t* id, std::unique_ptr<Grants> grants = nullptr);
  // The id names nothing from now on; the slot is not reused before recycle(). Until then it may be
  // retired again: the fence that follows may not hold at the first time.
  Status retire(uint64_t id);
  // What comes back when it is resumed.
  Status describe_suspended(uint64_t id, RegionView* out) const;
  void recycle(uint64_t id);
  // Instead of recycle: the id can come back, for the same memory. Then it is refused to transfers
  // that are older than that: `epoch` is raised and they know a smaller one.
  void suspend(uint64_t id);
  Status resume(uint64_t id, std::atomic<uint64_t>* epoch);
  bool drop_suspended(uint64_t id);  // true: it was suspended, its slot is free now
  // Of a region that is live or suspended. *old is to be deleted after a fence; null: nothing
  // changed. TCPX_UNSUPPORTED: every peer may use it.
  Status grant(uint64_t id, uint64_t peer, std::unique_ptr<const Grants>* old);
  Status revoke_grant(uint64_t id, uint64_t peer, std::unique_ptr<const Grants>* old);
  Status describe(uint64_t id, RegionView* out) const;
  bool is_live(uint64_t id) const;  // no lock
  size_t size() const;

  // TCPX_OK and the memory, or NOT_FOUND, STALE_REGION, ACCESS_DENIED, OUT_OF_RANGE.
  tcpx_code resolve(const wire::Piece& piece, uint32_t access, const RegionUser& user,
                    Resolved* out) const;

 private:
  // What a resolver reads lies in one line of the cache.
  struct alignas(64) Slot {
    std::atomic<uint64_t> id{0};  // 0: names nothing
    // Written before the id is published:
    RegionView view;
    uint64_t min_epoch = 0;
    std::atomic<const Grants*> grants{nullptr};  // null: everybody; owned
    uint64_t given = 0;                          // under mu_: ids so far
    uint64_t suspended = 0;                      // under mu_: the id that may come back
  };
  static_assert(sizeof(Slot) == 64);
  static constexpr uint32_t kBlockSlots = 1024;
  static constexpr uint32_t kMaxBlocks = RegionIds::kSlots / kBlockSlots;

  Slot* slot_at(uint32_t index) const;
  Slot* live_slot_locked(uint64_t id) const TCPX_REQUIRES(mu_);       // null: it names nothing
  Slot* suspended_slot_locked(uint64_t id) const TCPX_REQUIRES(mu_);  // null: it is not suspended
  void free_slot_locked(uint32_t index) TCPX_REQUIRES(mu_);
  Status change_grants(uint64_t id, std::unique_ptr<const Grants>* old,
                       bool (*change)(Grants*, uint64_t), uint64_t peer);

  mutable Mutex mu_;
  std::unique_ptr<std::atomic<Slot*>[]> blocks_;  // blocks never move: resolvers hold pointers
  uint32_t used_slots_ TCPX_GUARDED_BY(mu_) = 0;
  size_t live_ TCPX_GUARDED_BY(mu_) = 0;
  std::deque<uint32_t> free_ TCPX_GUARDED_BY(mu_);  // the one that rested longest comes first
  RegionIds ids_ TCPX_GUARDED_BY(mu_);
  // Retired, their memory perhaps still in use.
  std::set<uint64_t> leaving_ TCPX_GUARDED_BY(mu_);
};

}  // namespace tcpx
