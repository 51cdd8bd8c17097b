#include "engine/chunk_window.h"

#include <algorithm>

namespace tcpx {

namespace {

// A lane holds at most this much time's worth of chunks, at the rate it has shown: what a slow
// lane holds at the end of a transfer is what everybody waits for.
constexpr Nanos kHoldTime = 20 * kMilli;
constexpr uint32_t kMinWindow = 2;
constexpr uint32_t kFirstWindow = 4;  // before a rate is known
constexpr Nanos kRateSpan = kMilli;

}  // namespace

bool ChunkWindow::may_hold_more() const {
  if (used_ >= entries_.size()) return false;
  if (pace_ == Pace::kOneByOne) return used_ == 0;
  if (pace_ == Pace::kWhole || used_ < kMinWindow) return true;
  if (rate() == 0) return used_ < kFirstWindow;
  return static_cast<double>(held_bytes_) < rate() * kHoldTime;
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
  held_bytes_ += bytes;
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
  entry.state.step(ChunkOut::State::kFree);
  entry = {};
  --used_;
  held_bytes_ -= bytes;
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
