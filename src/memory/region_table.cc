#include "memory/region_table.h"

#include <array>
#include <cstring>

#include "base/ids.h"
#include "base/text.h"

namespace tcpx {

RegionTable::RegionTable() : blocks_(new std::atomic<Slot*>[kMaxBlocks]) {
  for (uint32_t i = 0; i < kMaxBlocks; ++i) blocks_[i].store(nullptr, std::memory_order_relaxed);
}

RegionTable::~RegionTable() {
  for (uint32_t i = 0; i < kMaxBlocks; ++i) delete[] blocks_[i].load(std::memory_order_relaxed);
}

RegionTable::Slot* RegionTable::slot_at(uint32_t index) const {
  uint32_t block = index / kBlockSlots;
  if (block >= kMaxBlocks) return nullptr;
  Slot* slots = blocks_[block].load(std::memory_order_acquire);
  return slots == nullptr ? nullptr : &slots[index % kBlockSlots];
}

Status RegionTable::add(void* base, uint64_t length, uint32_t access, uint64_t* id) {
  auto address = reinterpret_cast<uintptr_t>(base);
  if (base == nullptr && length > 0)
    return bad_call(TCPX_INVALID_ARGUMENT, "cannot register a null address; give memory you own");
  if (length > UINTPTR_MAX - address)
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("region of {} bytes at {} wraps the address space", length, base));
  if (access & ~(TCPX_REMOTE_READ | TCPX_REMOTE_WRITE))
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("unknown access bits {:#x}; use TCPX_REMOTE_READ and "
                         "TCPX_REMOTE_WRITE",
                         access));
  std::lock_guard lock(mu_);
  uint32_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    if (used_slots_ == kBlockSlots * kMaxBlocks)
      return bad_call(TCPX_LIMIT, "4194304 regions are registered; deregister some");
    index = used_slots_++;
    if (index % kBlockSlots == 0)
      blocks_[index / kBlockSlots].store(new Slot[kBlockSlots], std::memory_order_release);
  }
  Slot* slot = slot_at(index);
  // Generations start at random so that an id of an earlier process names nothing here.
  if (slot->next_generation == 0) {
    std::array<uint8_t, sizeof(uint32_t)> seed;
    if (Status status = random_bytes(seed); !status) {
      free_.push_back(index);
      return status;
    }
    memcpy(&slot->next_generation, seed.data(), seed.size());
  }
  uint32_t generation = slot->next_generation++;
  if (generation == 0) generation = slot->next_generation++;
  slot->view = {static_cast<uint8_t*>(base), length, access};
  slot->generation.store(generation, std::memory_order_release);
  ++live_;
  *id = make_region_id(index, generation);
  return {};
}

Status RegionTable::retire(uint64_t id) {
  std::lock_guard lock(mu_);
  Slot* slot = slot_at(region_slot(id));
  uint32_t generation = region_generation(id);
  if (slot == nullptr || generation == 0 || slot->generation.load() != generation)
    return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not registered", id));
  slot->generation.store(0, std::memory_order_release);
  --live_;
  return {};
}

void RegionTable::recycle(uint64_t id) {
  std::lock_guard lock(mu_);
  free_.push_back(region_slot(id));
}

void RegionTable::suspend(uint64_t id, bool in_use) {
  std::lock_guard lock(mu_);
  Slot* slot = slot_at(region_slot(id));
  slot->suspended = region_generation(id);
  if (in_use) slot->last_refused.store(region_generation(id), std::memory_order_relaxed);
}

Status RegionTable::resume(uint64_t id) {
  std::lock_guard lock(mu_);
  Slot* slot = slot_at(region_slot(id));
  uint32_t generation = region_generation(id);
  if (slot == nullptr || generation == 0 || slot->suspended != generation)
    return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not suspended", id));
  if (slot->last_refused.load(std::memory_order_relaxed) == generation)
    return bad_call(TCPX_BUSY,
                    strf("a peer has used region {:#x} since it was suspended; what else it has on "
                         "its way must not land: deregister it, and register the memory anew",
                         id));
  slot->suspended = 0;
  slot->generation.store(generation, std::memory_order_release);
  ++live_;
  return {};
}

void RegionTable::forget_refusals(uint64_t id) {
  if (Slot* slot = slot_at(region_slot(id))) slot->last_refused.store(0, std::memory_order_relaxed);
}

bool RegionTable::drop_suspended(uint64_t id) {
  std::lock_guard lock(mu_);
  Slot* slot = slot_at(region_slot(id));
  uint32_t generation = region_generation(id);
  if (slot == nullptr || generation == 0 || slot->suspended != generation) return false;
  slot->suspended = 0;
  free_.push_back(region_slot(id));
  return true;
}

Status RegionTable::describe(uint64_t id, RegionView* out) const {
  std::lock_guard lock(mu_);
  Slot* slot = slot_at(region_slot(id));
  uint32_t generation = region_generation(id);
  if (slot == nullptr || generation == 0 || slot->generation.load() != generation)
    return bad_call(TCPX_NOT_FOUND, strf("region {:#x} is not registered", id));
  *out = slot->view;
  return {};
}

bool RegionTable::is_live(uint64_t id) const {
  const Slot* slot = slot_at(region_slot(id));
  return slot != nullptr && region_generation(id) != 0 &&
         slot->generation.load(std::memory_order_acquire) == region_generation(id);
}

bool RegionTable::find_extent(const uint8_t* base, uint64_t length, RegionView* out) const {
  std::lock_guard lock(mu_);
  for (uint32_t index = 0; index < used_slots_; ++index) {
    const Slot* slot = slot_at(index);
    if (slot->generation.load(std::memory_order_relaxed) == 0) continue;
    const RegionView& view = slot->view;
    if (view.base > base || length > view.length) continue;
    if (static_cast<uint64_t>(base - view.base) > view.length - length) continue;
    *out = view;
    return true;
  }
  return false;
}

size_t RegionTable::size() const {
  std::lock_guard lock(mu_);
  return live_;
}

tcpx_code RegionTable::resolve(const wire::Piece& piece, uint32_t access, uint8_t** out) const {
  const Slot* slot = slot_at(piece.slot);
  if (slot == nullptr || piece.generation == 0) return TCPX_NOT_FOUND;
  if (slot->generation.load(std::memory_order_acquire) != piece.generation) {
    slot->last_refused.store(piece.generation, std::memory_order_relaxed);
    return TCPX_STALE_REGION;
  }
  const RegionView& view = slot->view;
  if ((view.access & access) != access) return TCPX_ACCESS_DENIED;
  if (piece.offset > view.length || piece.length > view.length - piece.offset)
    return TCPX_OUT_OF_RANGE;
  *out = view.base + piece.offset;
  return TCPX_OK;
}

}  // namespace tcpx
