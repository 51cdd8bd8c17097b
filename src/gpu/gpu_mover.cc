#include "gpu/gpu_mover.h"

#include <algorithm>
#include <utility>

namespace tcpx::gpu {

namespace {

// A ticket: of which GPU the move is (0: the host's), and its number there.
constexpr int kDeviceShift = 48;
constexpr uint64_t kNumber = (uint64_t{1} << kDeviceShift) - 1;

}  // namespace

GpuMover::GpuMover(const OpenGpus& gpus, MoveWatcher& watcher, bool stages_host)
    : gpus_(gpus), watcher_(watcher), host_(HostMover::for_streams(stages_host)) {}

void GpuMover::tell_nobody() noexcept {
  for (auto& part : parts_)
    if (part != nullptr && part->of.queue != nullptr) part->of.queue->close();
}

GpuMover::Part* GpuMover::part_of(const Place& place) {
  if (place.device < parts_.size() && parts_[place.device] != nullptr)
    return parts_[place.device].get();
  Gpu* gpu = gpus_.at(place.device);
  if (gpu == nullptr) return nullptr;
  if (parts_.size() <= place.device) parts_.resize(place.device + 1);
  auto part = std::make_unique<Part>();
  part->gpu = gpu;
  part->of = gpu->take_part(watcher_);
  part->taken.resize(2 * part->of.of_each);
  part->busy.resize(2 * part->of.of_each);
  part->free[0] = part->free[1] = part->of.of_each;
  parts_[place.device] = std::move(part);
  return parts_[place.device].get();
}

GpuMover::Part* GpuMover::part_with(const uint8_t* slot, size_t* index) {
  for (auto& part : parts_) {
    if (part == nullptr || slot < part->of.slots) continue;
    *index = static_cast<size_t>(slot - part->of.slots) / part->gpu->slot_bytes();
    if (*index < part->busy.size()) return part.get();
  }
  return nullptr;
}

size_t GpuMover::free_slots(SlotUse use, const Place& place) {
  if (place.is_host()) return host_.free_slots(use, place);
  Part* part = part_of(place);
  return part == nullptr ? 0 : part->free[static_cast<size_t>(use)];
}

uint64_t GpuMover::most_bytes(const Place& place) {
  if (place.is_host()) return host_.most_bytes(place);
  Part* part = part_of(place);
  return part == nullptr ? 0 : part->of.of_each * part->gpu->slot_bytes();
}

// Neighbours where one is not enough: a peer may choose larger chunks than we do. The first that
// are free, so that the same few are used again and again and stay in the cache.
uint8_t* GpuMover::take_slot(SlotUse use, uint64_t bytes, const Place& place) {
  if (place.is_host()) return host_.take_slot(use, bytes, place);
  Part* part = part_of(place);
  if (part == nullptr) return nullptr;
  const uint64_t size = part->gpu->slot_bytes();
  const auto need = static_cast<uint32_t>((bytes + size - 1) / size);
  const size_t begin = use == SlotUse::kSend ? 0 : part->of.of_each, end = begin + part->of.of_each;
  uint32_t run = 0;
  for (size_t at = begin; at < end; ++at) {
    run = part->busy[at] ? 0 : run + 1;
    if (run < need) continue;
    const size_t first = at + 1 - need;
    std::fill_n(part->busy.begin() + static_cast<std::ptrdiff_t>(first), need, true);
    part->taken[first] = need;
    part->free[static_cast<size_t>(use)] -= need;
    return part->of.slots + first * size;
  }
  return nullptr;
}

void GpuMover::give_slot(SlotUse use, uint8_t* slot) {
  size_t first = 0;
  Part* part = part_with(slot, &first);
  if (part == nullptr) return host_.give_slot(use, slot);
  const uint32_t count = std::exchange(part->taken[first], 0);
  std::fill_n(part->busy.begin() + static_cast<std::ptrdiff_t>(first), count, false);
  part->free[static_cast<size_t>(use)] += count;
}

RegionExtent GpuMover::slot_extent(const uint8_t* slot) const {
  return host_.slot_extent(slot);  // of pinned ones no stream asks
}

uint64_t GpuMover::begin(bool out, std::span<const iovec> memory, const Place& place,
                         uint8_t* slot) {
  Part& part = *part_of(place);
  const uint64_t number = part.of.queue->push(out, memory, slot, now_ns());
  part.gpu->wake();
  return (uint64_t{place.device} + 1) << kDeviceShift | number;
}

uint64_t GpuMover::begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) {
  return place.is_host() ? host_.begin_out(memory, place, slot) : begin(true, memory, place, slot);
}

uint64_t GpuMover::begin_in(const uint8_t* slot, std::span<const iovec> memory,
                            const Place& place) {
  return place.is_host() ? host_.begin_in(slot, memory, place)
                         : begin(false, memory, place, const_cast<uint8_t*>(slot));
}

MoveState GpuMover::look(uint64_t ticket, MoveEnd* end) {
  const uint64_t device = ticket >> kDeviceShift;
  if (device == 0) return host_.look(ticket, end);
  Part& part = *parts_[device - 1];
  const MoveState state =
      part.of.queue->look(static_cast<uint32_t>(ticket & kNumber), part.gpu->lost(), end);
  if (state == MoveState::kFailed && end->why.empty()) end->why = part.gpu->lost_why();
  return state;
}

// Asked after the watcher has said that it does not look: either the GPU's thread sees that, or we
// see here that it sleeps.
bool GpuMover::tells() {
  if (host_.staged() != 0) return false;
  for (auto& part : parts_)
    if (part != nullptr && part->of.queue != nullptr) part->gpu->wake();
  return true;
}

}  // namespace tcpx::gpu
