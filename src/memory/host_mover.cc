#include "memory/host_mover.h"

#include <algorithm>
#include <new>

#include "base/text.h"
#include "memory/payload_copy.h"

namespace tcpx {

namespace {

// Of each use, per loop: one that moves, one on its way and some to come, for two lanes.
constexpr size_t kSlots = 8;
// One lane has them to itself: as many as a plugin has requests, two that wait behind them, and one
// that receives are posted on.
constexpr size_t kSlotsBeside = 19;
// Moved between two calls of a plugin: 5 us or so. With 128 KiB (27 us) an interrupt made more than
// 100 us of it 6 to 14 times a second, with this 0 to 6, as for a thread that only reads the clock;
// rates are the same or better.
constexpr uint64_t kStepBeside = 32u << 10;

}  // namespace

HostMover::HostMover(const Shape& shape) : shape_(shape), slots_(2 * shape.slots) {
  for (size_t i = 0; i < slots_.size(); ++i) free_[i % 2].push_back(i);
}

uint8_t* HostMover::take_slot(SlotUse use, uint64_t bytes, const Place&) {
  if (of(use).empty()) return nullptr;
  Slot& slot = slots_[of(use).back()];
  if (slot.memory.size() < bytes) {
    Pages larger;
    if (!larger.allocate(std::max<uint64_t>(bytes, 2 * slot.memory.size()))) throw std::bad_alloc();
    if (slot.memory.size() > 0) outgrown_.push_back(std::move(slot.memory));
    slot.memory = std::move(larger);
    slot.id = ++last_id_;
  }
  of(use).pop_back();
  return slot.memory.data();
}

void HostMover::give_slot(SlotUse use, uint8_t* slot) {
  auto found = std::find_if(slots_.begin(), slots_.end(),
                            [slot](const Slot& each) { return each.memory.data() == slot; });
  of(use).push_back(static_cast<size_t>(found - slots_.begin()));
}

RegionExtent HostMover::slot_extent(const uint8_t* slot) const {
  for (const Slot& each : slots_)
    if (each.memory.data() == slot) return {each.id, each.memory.data(), each.memory.size()};
  return {};
}

uint64_t HostMover::begin(const Job& job) {
  if (free_jobs_.empty()) {
    free_jobs_.reserve(jobs_.size() + 1);
    jobs_.push_back(job);
    return jobs_.size();
  }
  size_t at = free_jobs_.back();
  free_jobs_.pop_back();
  jobs_[at] = job;
  return at + 1;
}

uint64_t HostMover::begin_copy(Way way, std::span<const iovec> memory, uint8_t* slot) {
  Job job{way, ScatterList(memory), 0, 0, slot, {}, nullptr, now_ns()};
  for (const iovec& part : memory) job.end += part.iov_len;
  return begin(job);
}

uint64_t HostMover::begin_out(std::span<const iovec> memory, const Place&, uint8_t* slot) {
  return begin_copy(Way::kOut, memory, slot);
}

uint64_t HostMover::begin_in(const uint8_t* slot, std::span<const iovec> memory, const Place&) {
  return begin_copy(Way::kIn, memory, const_cast<uint8_t*>(slot));
}

uint64_t HostMover::begin_unpack(const Unpacking& what) {
  return begin({Way::kUnpack, ScatterList(what.memory), what.offset, 0, nullptr, what.fragments,
                what.pool, 0});
}

// Whether that was the last of it.
bool HostMover::copy_some(Job& job) const {
  uint64_t bytes = std::min(shape_.step, job.end - job.at);
  if (job.way == Way::kOut)
    job.memory.get(job.at, job.slot + job.at, bytes);
  else
    job.memory.put(job.at, job.slot + job.at, bytes);
  job.at += bytes;
  return job.at == job.end;
}

bool HostMover::unpack_some(Job& job) const {
  size_t count = 0;
  for (uint64_t bytes = 0; count < job.fragments.size() && bytes < shape_.step; ++count) {
    const Fragment& fragment = job.fragments[count];
    job.memory.put(job.at + fragment.destination, job.pool + fragment.source, fragment.length);
    bytes += fragment.length;
  }
  job.fragments = job.fragments.subspan(count);
  return job.fragments.empty();
}

// Nobody else does it: it is under way from its beginning on.
MoveState HostMover::look(uint64_t ticket, MoveEnd* end) {
  Job& job = jobs_[ticket - 1];
  if (!(job.way == Way::kUnpack ? unpack_some(job) : copy_some(job))) return MoveState::kRunning;
  if (job.begun != 0) {
    end->begun = end->submitted = job.begun;
    end->over = now_ns();
  }
  free_jobs_.push_back(ticket - 1);
  return MoveState::kDone;
}

HostMover::Shape HostMover::for_streams(bool stages) {
  return {kSlots, stages};
}

Status HostMovers::admit(const void*, uint64_t, const Place& place) {
  if (place.is_host()) return {};
  return bad_call(TCPX_UNSUPPORTED, strf("this engine cannot move memory of {}; register host "
                                         "memory and copy it yourself",
                                         place.text()));
}

std::unique_ptr<Mover> HostMovers::make(MoverFor use, MoveWatcher&) {
  if (use == MoverFor::kStreams)
    return stages_ ? std::make_unique<HostMover>(HostMover::for_streams(true)) : nullptr;
  return std::make_unique<HostMover>(HostMover::Shape{kSlotsBeside, stages_, kStepBeside});
}

}  // namespace tcpx
