#include "gpu/gpu_mover.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace tcpx::gpu {

namespace {

// A ticket: of which GPU the move is (0: the host's), and its number there, or which spare it is
// out of.
constexpr int kDeviceShift = 48;
constexpr uint64_t kOutOfSpare = uint64_t{1} << (kDeviceShift - 1);
constexpr uint64_t kNumber = kOutOfSpare - 1;
// As many jobs as the queue has, half of them each way.
constexpr size_t kMostChunks = MoveQueue::kJobs / 2;
// Times the loop's part of the staging: what peers have under way when a GPU stops.
constexpr uint64_t kMostSpare = 4;

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
  // What may throw comes first: a part that is taken and not kept would be lost to this loop.
  auto part = std::make_unique<Part>();
  part->gpu = gpu;
  for (Slots& slots : part->slots) slots = Slots(gpu->slots_of_each(), gpu->slots_of_a_chunk());
  part->of = gpu->take_part(watcher_);
  if (part->of.of_each == 0) part->slots[0] = part->slots[1] = {};
  parts_[place.device] = std::move(part);
  return parts_[place.device].get();
}

GpuMover::Part* GpuMover::part_with(const uint8_t* slot) {
  for (auto& part : parts_) {
    if (part == nullptr || slot < part->of.slots) continue;
    if (slot < part->of.slots + 2 * part->of.of_each * part->gpu->slot_bytes()) return part.get();
  }
  return nullptr;
}

// Those to send from come first.
uint32_t GpuMover::index_of(const Part& part, SlotUse use, const uint8_t* slot) {
  const auto index =
      static_cast<uint32_t>(static_cast<uint64_t>(slot - part.of.slots) / part.gpu->slot_bytes());
  return use == SlotUse::kSend ? index : index - part.of.of_each;
}

size_t GpuMover::free_slots(SlotUse use, const Place& place) {
  if (place.is_host()) return host_.free_slots(use, place);
  Part* part = part_of(place);
  if (part == nullptr || slots_of(*part, use).chunks() == kMostChunks) return 0;
  const bool arrives = use == SlotUse::kReceive;
  return slots_of(*part, use).room(arrives ? SlotHolder::kArrives : SlotHolder::kIsThere);
}

uint64_t GpuMover::most_bytes(const Place& place) {
  if (place.is_host()) return host_.most_bytes(place);
  Part* part = part_of(place);
  return part == nullptr ? 0 : part->of.of_each * part->gpu->slot_bytes();
}

uint8_t* GpuMover::take_slot(SlotUse use, uint64_t bytes, const Place& place) {
  if (place.is_host()) return host_.take_slot(use, bytes, place);
  if (free_slots(use, place) == 0) return nullptr;
  const bool arrives = use == SlotUse::kReceive;
  return take(use, arrives ? SlotHolder::kArrives : SlotHolder::kIsThere, bytes, *part_of(place));
}

uint8_t* GpuMover::take(SlotUse use, SlotHolder holder, uint64_t bytes, Part& part) {
  const uint64_t size = part.gpu->slot_bytes();
  const uint32_t first =
      slots_of(part, use).take(static_cast<uint32_t>((bytes + size - 1) / size), holder);
  if (first == Slots::kNone) return nullptr;
  return part.of.slots + (first + (use == SlotUse::kSend ? 0 : part.of.of_each)) * size;
}

void GpuMover::give_slot(SlotUse use, uint8_t* slot) {
  Part* part = part_with(slot);
  if (part == nullptr) return host_.give_slot(use, slot);
  slots_of(*part, use).give(index_of(*part, use, slot));
}

RegionExtent GpuMover::slot_extent(const uint8_t* slot) const {
  return host_.slot_extent(slot);  // of pinned ones no stream asks
}

// ---- spare memory ----------------------------------------------------------------------------

uint8_t* GpuMover::take_spare(uint64_t bytes, const Place& place) {
  Part* part = place.is_host() ? nullptr : part_of(place);
  if (part == nullptr || part->spare_bytes + bytes > kMostSpare * 2 * most_bytes(place))
    return nullptr;
  auto spare = std::make_unique<Spare>();
  if (!spare->memory.allocate(bytes)) return nullptr;
  spare->bytes = bytes;
  uint8_t* at = spare->memory.data();
  auto free = std::find(part->spares.begin(), part->spares.end(), nullptr);
  if (free != part->spares.end())
    *free = std::move(spare);
  else
    part->spares.push_back(std::move(spare));
  part->spare_bytes += bytes;
  return at;
}

void GpuMover::give_spare(uint8_t* at, const Place& place) {
  Part& part = *part_of(place);
  std::unique_ptr<Spare>& spare = part.spares[spare_at(part, at)];
  part.spare_bytes -= spare->bytes;
  spare.reset();
}

size_t GpuMover::spare_at(const Part& part, const uint8_t* at) {
  size_t index = 0;
  while (index < part.spares.size() &&
         (part.spares[index] == nullptr || part.spares[index]->memory.data() != at))
    ++index;
  return index;
}

void GpuMover::give_slot_of(Spare& spare) {
  if (spare.slot != nullptr) give_slot(SlotUse::kReceive, std::exchange(spare.slot, nullptr));
}

// With a slot it is a move like any other.
MoveState GpuMover::look_at_spare(Part& part, Spare& spare, MoveEnd* end) {
  if (spare.begun) {
    const MoveState state = look_at(part, spare.number, end);
    if (state != MoveState::kRunning) give_slot_of(spare);
    return state;
  }
  const bool lost = part.gpu->lost();
  if (!lost && spare.slot == nullptr) {
    if (slots_of(part, SlotUse::kReceive).chunks() < kMostChunks)
      spare.slot = take(SlotUse::kReceive, SlotHolder::kIsThere, spare.bytes, part);
    if (spare.slot == nullptr) return MoveState::kRunning;
    std::memcpy(spare.slot, spare.memory.data(), spare.bytes);
  }
  if (!lost)
    spare.number = push(part, false, spare.to, spare.slot);
  else
    give_slot_of(spare);
  spare.begun = true;
  --part.spares_waiting;
  return lost ? MoveState::kFailed : MoveState::kRunning;
}

// ---- moves -----------------------------------------------------------------------------------

uint32_t GpuMover::push(Part& part, bool out, std::span<const iovec> memory, uint8_t* slot) {
  const uint32_t number = part.of.queue->push(out, memory, slot, now_ns());
  part.gpu->wake();
  return number;
}

uint64_t GpuMover::begin(bool out, std::span<const iovec> memory, const Place& place,
                         uint8_t* slot) {
  Part& part = *part_of(place);
  const uint64_t device = (uint64_t{place.device} + 1) << kDeviceShift;
  const size_t index = out || part.spare_bytes == 0 ? part.spares.size() : spare_at(part, slot);
  if (index == part.spares.size()) {
    if (!out)
      slots_of(part, SlotUse::kReceive).has_arrived(index_of(part, SlotUse::kReceive, slot));
    return device | push(part, out, memory, slot);
  }
  part.spares[index]->to = memory;
  ++part.spares_waiting;
  return device | kOutOfSpare | index;
}

uint64_t GpuMover::begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) {
  return place.is_host() ? host_.begin_out(memory, place, slot) : begin(true, memory, place, slot);
}

uint64_t GpuMover::begin_in(const uint8_t* slot, std::span<const iovec> memory,
                            const Place& place) {
  return place.is_host() ? host_.begin_in(slot, memory, place)
                         : begin(false, memory, place, const_cast<uint8_t*>(slot));
}

MoveState GpuMover::look_at(Part& part, uint32_t number, MoveEnd* end) {
  return part.of.queue->look(number, part.gpu->lost(), end);
}

// The ticket is used up: what is thrown here would have it looked at again.
void GpuMover::say_why(const Gpu& gpu, MoveEnd* end) noexcept {
  try {
    end->why = gpu.lost_why();
  } catch (const std::bad_alloc&) {
  }
}

MoveState GpuMover::look(uint64_t ticket, MoveEnd* end) {
  const uint64_t device = ticket >> kDeviceShift;
  if (device == 0) return host_.look(ticket, end);
  Part& part = *parts_[device - 1];
  const uint64_t number = ticket & kNumber;
  const MoveState state = (ticket & kOutOfSpare) != 0
                              ? look_at_spare(part, *part.spares[number], end)
                              : look_at(part, static_cast<uint32_t>(number), end);
  if (state == MoveState::kFailed && end->why.empty()) say_why(*part.gpu, end);
  return state;
}

bool GpuMover::take_back(uint64_t ticket) {
  const uint64_t device = ticket >> kDeviceShift;
  if (device == 0 || (ticket & kOutOfSpare) == 0) return false;
  Part& part = *parts_[device - 1];
  Spare& spare = *part.spares[ticket & kNumber];
  if (spare.begun) return false;
  spare.begun = true;
  --part.spares_waiting;
  return true;
}

// Asked after the watcher has said that it does not look: either the GPU's thread sees that, or we
// see here that it sleeps.
bool GpuMover::tells() {
  if (host_.staged() != 0) return false;
  bool moves = false;  // else what is waited for is a slot, of which nobody tells
  for (auto& part : parts_) {
    if (part == nullptr || part->of.queue == nullptr) continue;
    if (part->spares_waiting > 0) return false;
    moves |= part->of.queue->has_jobs();
  }
  if (!moves) return false;
  for (auto& part : parts_)
    if (part != nullptr && part->of.queue != nullptr) part->gpu->wake();
  return true;
}

}  // namespace tcpx::gpu
