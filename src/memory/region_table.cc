#include "memory/region_table.h"

#include <algorithm>
#include <new>

#include "base/text.h"

namespace tcpx {

RegionTable::RegionTable() : blocks_(new std::atomic<Slot*>[kMaxBlocks]) {
  for (uint32_t i = 0; i < kMaxBlocks; ++i) blocks_[i].store(nullptr, std::memory_order_relaxed);
}

RegionTable::~RegionTable() {
  for (uint32_t i = 0; i < used_slots_; ++i)
    delete slot_at(i)->grants.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < kMaxBlocks; ++i) delete[] blocks_[i].load(std::memory_order_relaxed);
}

RegionTable::Slot* RegionTable::slot_at(uint32_t index) const {
  Slot* slots = blocks_[index / kBlockSlots].load(std::memory_order_acquire);
  return slots == nullptr ? nullptr : &slots[index % kBlockSlots];
}

RegionTable::Slot* RegionTable::live_slot_locked(uint64_t id) const {
  Slot* slot = slot_at(RegionIds::slot_of(id));
  return slot != nullptr && id != 0 && slot->id.load() == id ? slot : nullptr;
}

RegionTable::Slot* RegionTable::suspended_slot_locked(uint64_t id) const {
  Slot* slot = slot_at(RegionIds::slot_of(id));
  return slot != nullptr && id != 0 && slot->suspended == id ? slot : nullptr;
}

Status RegionTable::add(const RegionView& region, uint64_t* id, std::unique_ptr<Grants> grants) {
  auto address = reinterpret_cast<uintptr_t>(region.base);
  if (region.base == nullptr && region.length > 0)
    return bad_call(TCPX_INVALID_ARGUMENT, "cannot register a null address; give memory you own");
  if (region.length > UINTPTR_MAX - address)
    return bad_call(TCPX_INVALID_ARGUMENT, strf("region of {} bytes at {} wraps the address space",
                                                region.length, static_cast<void*>(region.base)));
  if (region.access & ~(TCPX_REMOTE_READ | TCPX_REMOTE_WRITE))
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("unknown access bits {:#x}; use TCPX_REMOTE_READ and "
                         "TCPX_REMOTE_WRITE",
                         region.access));
  MutexLock lock(mu_);
  uint32_t index;
  if (!free_.empty()) {
    index = free_.front();
    free_.pop_front();
  } else {
    if (used_slots_ == RegionIds::kSlots)
      return bad_call(TCPX_LIMIT,
                      strf("{} regions are registered; deregister some", RegionIds::kSlots));
    if (used_slots_ % kBlockSlots == 0)
      blocks_[used_slots_ / kBlockSlots].store(new Slot[kBlockSlots], std::memory_order_release);
    index = used_slots_++;
  }
  Slot* slot = slot_at(index);
  uint64_t made = 0;
  if (Status status = ids_.next(index, &slot->given, &made); !status) {
    free_.push_front(index);
    return status;
  }
  slot->view = region;
  slot->min_epoch = 0;
  slot->grants.store(grants.release(), std::memory_order_relaxed);
  slot->id.store(made, std::memory_order_release);
  ++live_;
  *id = made;
  return {};
}

Status RegionTable::retire(uint64_t id) {
  MutexLock lock(mu_);
  if (Slot* slot = live_slot_locked(id)) {
    leaving_.insert(id);  // may throw: nothing has changed yet
    slot->id.store(0, std::memory_order_release);
    --live_;
  }
  if (leaving_.count(id) == 0)
    return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not registered", id));
  return {};
}

// A slot that has had all its generations is never used again; nor is one for which there is no
// memory to remember that it is free.
void RegionTable::free_slot_locked(uint32_t index) {
  Slot* slot = slot_at(index);
  delete slot->grants.exchange(nullptr, std::memory_order_relaxed);
  if (slot->given + 1 == RegionIds::kGenerations) return;
  try {
    free_.push_back(index);
  } catch (const std::bad_alloc&) {
  }
}

void RegionTable::recycle(uint64_t id) {
  MutexLock lock(mu_);
  if (leaving_.erase(id) == 0) return;  // two have waited for the same fence
  free_slot_locked(RegionIds::slot_of(id));
}

void RegionTable::suspend(uint64_t id) {
  MutexLock lock(mu_);
  if (leaving_.erase(id) == 0) return;
  slot_at(RegionIds::slot_of(id))->suspended = id;
}

Status RegionTable::describe_suspended(uint64_t id, RegionView* out) const {
  MutexLock lock(mu_);
  const Slot* slot = suspended_slot_locked(id);
  if (slot == nullptr) return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not suspended", id));
  *out = slot->view;
  return {};
}

Status RegionTable::resume(uint64_t id, std::atomic<uint64_t>* epoch) {
  MutexLock lock(mu_);
  Slot* slot = suspended_slot_locked(id);
  if (slot == nullptr) return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not suspended", id));
  slot->suspended = 0;
  slot->min_epoch = epoch->fetch_add(1) + 1;
  slot->id.store(id, std::memory_order_release);
  ++live_;
  return {};
}

bool RegionTable::drop_suspended(uint64_t id) {
  MutexLock lock(mu_);
  Slot* slot = suspended_slot_locked(id);
  if (slot == nullptr) return false;
  slot->suspended = 0;
  free_slot_locked(RegionIds::slot_of(id));
  return true;
}

Status RegionTable::grant(uint64_t id, uint64_t peer, std::unique_ptr<const Grants>* old) {
  return change_grants(
      id, old,
      [](Grants* grants, uint64_t who) {
        auto at = std::lower_bound(grants->begin(), grants->end(), who);
        if (at != grants->end() && *at == who) return false;
        grants->insert(at, who);
        return true;
      },
      peer);
}

Status RegionTable::revoke_grant(uint64_t id, uint64_t peer, std::unique_ptr<const Grants>* old) {
  return change_grants(
      id, old, [](Grants* grants, uint64_t who) { return std::erase(*grants, who) > 0; }, peer);
}

Status RegionTable::change_grants(uint64_t id, std::unique_ptr<const Grants>* old,
                                  bool (*change)(Grants*, uint64_t), uint64_t peer) {
  MutexLock lock(mu_);
  Slot* slot = live_slot_locked(id);
  if (slot == nullptr) slot = suspended_slot_locked(id);
  if (slot == nullptr) return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not registered", id));
  const Grants* present = slot->grants.load(std::memory_order_relaxed);
  if (present == nullptr)
    return bad_call(
        TCPX_UNSUPPORTED,
        strf("region {:#x} is open to every peer; register it with tcpx_register_for", id));
  auto next = std::make_unique<Grants>(*present);
  if (!change(next.get(), peer)) return {};
  slot->grants.store(next.release(), std::memory_order_release);
  old->reset(present);
  return {};
}

Status RegionTable::describe(uint64_t id, RegionView* out) const {
  MutexLock lock(mu_);
  Slot* slot = live_slot_locked(id);
  if (slot == nullptr) return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not registered", id));
  *out = slot->view;
  return {};
}

bool RegionTable::is_live(uint64_t id) const {
  const Slot* slot = slot_at(RegionIds::slot_of(id));
  return slot != nullptr && id != 0 && slot->id.load(std::memory_order_acquire) == id;
}

size_t RegionTable::size() const {
  MutexLock lock(mu_);
  return live_;
}

tcpx_code RegionTable::resolve(const wire::Piece& piece, uint32_t access, const RegionUser& user,
                               Resolved* out) const {
  const Slot* slot = slot_at(RegionIds::slot_of(piece.region));
  if (slot == nullptr || RegionIds::generation_of(piece.region) == 0) return TCPX_NOT_FOUND;
  if (slot->id.load(std::memory_order_acquire) != piece.region) return TCPX_STALE_REGION;
  if (user.epoch < slot->min_epoch) return TCPX_STALE_REGION;
  const Grants* grants = slot->grants.load(std::memory_order_acquire);
  if (grants != nullptr && !std::binary_search(grants->begin(), grants->end(), user.peer))
    return TCPX_ACCESS_DENIED;
  const RegionView& view = slot->view;
  if ((view.access & access) != access) return TCPX_ACCESS_DENIED;
  if (piece.offset > view.length || piece.length > view.length - piece.offset)
    return TCPX_OUT_OF_RANGE;
  *out = {view.base + piece.offset, view.place, {piece.region, view.base, view.length}};
  return TCPX_OK;
}

}  // namespace tcpx
