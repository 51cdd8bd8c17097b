#include "gpu/slots.h"

#include <algorithm>

namespace tcpx::gpu {

Slots::Slots(uint32_t count, uint32_t of_a_chunk)
    : of_a_chunk_(of_a_chunk),
      chunk_at_(count / of_a_chunk * of_a_chunk),
      busy_(chunk_at_.size()),
      groups_(count / of_a_chunk),
      free_(groups_.size()),
      quiet_(groups_.size()) {}

size_t Slots::room(SlotHolder holder) const {
  if (holder == SlotHolder::kIsThere || free_ == 0) return free_;
  return std::min(free_, quiet_ - 1);  // a free one is quiet
}

uint32_t Slots::free_run(uint32_t group, uint32_t need) const {
  uint32_t run = 0;
  for (uint32_t at = group * of_a_chunk_; at < (group + 1) * of_a_chunk_; ++at) {
    run = busy_[at] ? 0 : run + 1;
    if (run == need) return at + 1 - need;
  }
  return kNone;
}

// The first that is free, so that the same few are used again and again and stay in the cache;
// beside others of its kind before a group of its own.
uint32_t Slots::find(uint32_t need, SlotHolder holder) const {
  const bool arrives = holder == SlotHolder::kArrives;
  const bool may_join_quiet = !arrives || quiet_ > 1;
  uint32_t alone = kNone;
  for (uint32_t i = 0; i < groups_.size(); ++i) {
    const Group& group = groups_[i];
    if (group.arriving == 0 && !may_join_quiet) continue;
    const bool company = arrives ? group.arriving > 0 : group.taken > 0;
    if (!company && alone != kNone) continue;
    const uint32_t at = free_run(i, need);
    if (at == kNone) continue;
    if (company) return at;
    alone = at;
  }
  return alone;
}

uint32_t Slots::find_groups(uint32_t count) const {
  uint32_t run = 0;
  for (uint32_t i = 0; i < groups_.size(); ++i) {
    run = groups_[i].taken > 0 ? 0 : run + 1;
    if (run == count) return (i + 1 - count) * of_a_chunk_;
  }
  return kNone;
}

uint32_t Slots::take(uint32_t need, SlotHolder holder) {
  const uint32_t groups = (need + of_a_chunk_ - 1) / of_a_chunk_;
  uint32_t first = kNone;
  if (groups == 1)
    first = find(need, holder);
  else if (holder == SlotHolder::kIsThere || quiet_ > groups)
    first = find_groups(groups);
  if (first == kNone) return kNone;
  chunk_at_[first] = {need, holder == SlotHolder::kArrives};
  count(first, true, chunk_at_[first].arrives, 1);
  ++chunks_;
  return first;
}

void Slots::has_arrived(uint32_t first) {
  if (!chunk_at_[first].arrives) return;
  count(first, false, true, -1);
  chunk_at_[first].arrives = false;
}

void Slots::give(uint32_t first) {
  count(first, true, chunk_at_[first].arrives, -1);
  chunk_at_[first] = {};
  --chunks_;
}

void Slots::count(uint32_t first, bool taken, bool arriving, int by) {
  for (uint32_t at = first; at < first + chunk_at_[first].slots; ++at) {
    Group& group = groups_[at / of_a_chunk_];
    free_ -= group.taken == 0;
    quiet_ -= group.arriving == 0;
    if (taken) {
      busy_[at] = by > 0;
      group.taken += static_cast<uint32_t>(by);
    }
    if (arriving) group.arriving += static_cast<uint32_t>(by);
    free_ += group.taken == 0;
    quiet_ += group.arriving == 0;
  }
}

}  // namespace tcpx::gpu
