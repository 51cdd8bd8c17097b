#include "memory/host_mover.h"

#include <algorithm>

#include "memory/payload_copy.h"

namespace tcpx {

namespace {

// Of each use, per loop: one that moves, one on its way and some to come, for two lanes.
constexpr size_t kSlots = 8;
constexpr uint64_t kBegun = 1;  // every move is over when it has begun

}  // namespace

HostMover::HostMover(size_t slots_of_each_use) : slots_(2 * slots_of_each_use) {
  for (size_t i = 0; i < slots_.size(); ++i) free_[i % 2].push_back(i);
}

uint8_t* HostMover::take_slot(SlotUse use, uint64_t bytes) {
  if (of(use).empty()) return nullptr;
  Slot& slot = slots_[of(use).back()];
  if (slot.size < bytes) {
    slot.bytes.reset(new uint8_t[bytes]);
    slot.size = bytes;
  }
  of(use).pop_back();
  return slot.bytes.get();
}

void HostMover::give_slot(SlotUse use, uint8_t* slot) {
  auto found = std::find_if(slots_.begin(), slots_.end(),
                            [slot](const Slot& each) { return each.bytes.get() == slot; });
  of(use).push_back(static_cast<size_t>(found - slots_.begin()));
}

uint64_t HostMover::begin_out(std::span<const iovec> memory, const Place&, uint8_t* slot) {
  for (const iovec& part : memory) {
    copy_payload(slot, static_cast<const uint8_t*>(part.iov_base), part.iov_len);
    slot += part.iov_len;
  }
  return kBegun;
}

uint64_t HostMover::begin_in(const uint8_t* slot, std::span<const iovec> memory, const Place&) {
  for (const iovec& part : memory) {
    copy_payload(static_cast<uint8_t*>(part.iov_base), slot, part.iov_len);
    slot += part.iov_len;
  }
  return kBegun;
}

std::unique_ptr<Mover> HostMovers::make() {
  return std::make_unique<HostMover>(kSlots);
}

}  // namespace tcpx
