#include "engine/chunk_window.h"

#include <algorithm>
#include <utility>

namespace tcpx {

namespace {

// A lane holds at most this much time's worth of chunks, at the rate it has shown: what a slow
// lane holds at the end of a transfer is what everybody waits for.
constexpr Nanos kHoldTime = 20 * kMilli;
constexpr uint32_t kMinWindow = 2;
constexpr uint32_t kFirstWindow = 4;  // before a rate is known
constexpr Nanos kRateSpan = kMilli;

}  // namespace

// Of one kind: what a GPU keeps must not count against what could move.
bool ChunkWindow::holds_enough(const Held& held) const {
  if (pace_ != Pace::kAdaptive || held.chunks < kMinWindow) return false;
  if (rate() == 0) return held.chunks >= kFirstWindow;
  return static_cast<double>(held.bytes) >= rate() * kHoldTime;
}

// A window of one has no shares.
uint32_t ChunkWindow::left_for_gpus() const {
  const auto places = static_cast<uint32_t>(entries_.size());
  return std::max(places, 2u) - 1 - of_gpus_;
}

PlaceMask ChunkWindow::no_more_of(const GpusHeld& gpus) const {
  const uint32_t left = left_for_gpus();
  if (left == 0) return kGpuBits;
  PlaceMask out = 0;
  for (PlaceMask rest = gpus.some; rest != 0; rest &= rest - 1) {
    const Place gpu = first_of(rest);
    const Held& held = gpus.of[gpu.device];
    if (held.chunks >= left || holds_enough(held)) out |= mask_of(gpu);
  }
  return out;
}

NoMoreOf ChunkWindow::no_more() const {
  return {0, {no_more_of(gpus_[0]), no_more_of(gpus_[1])}, holds_enough(host_)};
}

// What a chunk that touches these is counted with.
template <class F>
void ChunkWindow::each_held(const GpusTouched& gpus, F&& f) {
  if (gpus.none()) return f(host_);
  for (auto [end, gpu] : {std::pair{&gpus_[0], gpus.here}, {&gpus_[1], gpus.there}}) {
    if (gpu == 0) continue;
    Held& held = end->of[first_of(gpu).device];
    f(held);
    end->some = held.chunks > 0 ? end->some | gpu : end->some & ~gpu;
  }
}

ChunkOut& ChunkWindow::take(ChunkWork&& work, uint64_t bytes, bool is_read, ChunkOut::State state,
                            Nanos now) {
  ChunkOut& entry = *std::find_if(entries_.begin(), entries_.end(),
                                  [](const ChunkOut& each) { return !each.used(); });
  entry.state.step(state);
  entry.transfer = std::move(work.transfer);
  entry.transfer_id = work.transfer_id;
  entry.chunk = work.chunk;
  entry.bytes = bytes;
  entry.since = now;
  entry.is_read = is_read;
  entry.gpus = entry.transfer->plan.gpus_of(entry.chunk);
  of_gpus_ += !entry.gpus.none();
  each_held(entry.gpus, [bytes](Held& held) {
    ++held.chunks;
    held.bytes += bytes;
  });
  if (used_++ == 0) {
    busy_since_ = measured_since_ = now;
    answered_bytes_ = 0;
  }
  return entry;
}

ChunkOut* ChunkWindow::find(uint64_t transfer_id, uint32_t chunk) {
  for (ChunkOut& entry : entries_)
    if (entry.used() && entry.transfer_id == transfer_id && entry.chunk == chunk) return &entry;
  return nullptr;
}

ChunkWork ChunkWindow::settle(ChunkOut& entry, bool well, Nanos now) {
  ChunkWork work{std::move(entry.transfer), entry.transfer_id, entry.chunk};
  work.copied = entry.copied;
  const uint64_t bytes = entry.bytes;
  const GpusTouched gpus = entry.gpus;
  entry.state.step(ChunkOut::State::kFree);
  entry = {};
  --used_;
  of_gpus_ -= !gpus.none();
  each_held(gpus, [bytes](Held& held) {
    --held.chunks;
    held.bytes -= bytes;
  });
  if (well) learn_rate(bytes, now);
  return work;
}

// The rate at which answers come back while the lane is busy, over a span of time: answers come in
// bursts, and taken one by one they showed ten times the rate of a WRITE.
void ChunkWindow::learn_rate(uint64_t bytes, Nanos now) {
  answered_bytes_ += bytes;
  const Nanos span = now - measured_since_;
  const bool all_of_it = used_ == 0 && measured_since_ == busy_since_ && span > 0;
  if (span < kRateSpan && !all_of_it) return;
  if (answered_bytes_ < chunk_bytes_ / 4) return;  // too small to tell
  const double sample = static_cast<double>(answered_bytes_) / static_cast<double>(span);
  const double before = rate();
  rate_.store(before == 0 ? sample : before + (sample - before) / 8, std::memory_order_relaxed);
  measured_since_ = now;
  answered_bytes_ = 0;
}

const ChunkOut* ChunkWindow::oldest() const {
  const ChunkOut* oldest = nullptr;
  for (const ChunkOut& entry : entries_)
    if (entry.used() && (oldest == nullptr || entry.since < oldest->since)) oldest = &entry;
  return oldest;
}

}  // namespace tcpx
