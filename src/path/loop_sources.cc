#include "path/loop_sources.h"

#include <algorithm>

#include "base/caught.h"

namespace tcpx {

bool LoopSources::poll_sources() {
  bool found = false;
  bool directly = false;
  if (!asked_.empty()) found |= run_asked(&directly);
  if (!unfinished_.empty()) found |= finish_some();
  // Who is asked directly need not be asked for; where one has done all it may, the others are.
  bool alone = sources_.size() == free_sources_.size() + 1;
  uint32_t rounds = alone ? tuning::kRoundsPerEpollAlone : tuning::kRoundsPerEpoll;
  if (directly && !turns_.any_over() && ++rounds_without_epoll_ < rounds) return found;
  rounds_without_epoll_ = 0;
  return poll_events(0, [] {}) || found;
}

// Nobody is asked instead of epoll while somebody waits for room, which epoll alone tells.
bool LoopSources::run_asked(bool* directly) {
  bool found = false;
  bool by_epoll = events_.room_is_watched();
  const Nanos now = seen_clock();
  for (const AskList::Entry& entry : asked_.begin_round()) {
    uint32_t index = entry.source;
    if (sources_[index] == nullptr) continue;
    if (entry.now && turns_.left(index) == 0) {
      asked_.put_off(entry);
      found = true;
      continue;
    }
    if (entry.until > now) asked_.ask_until(index, entry.until);
    if (entry.now || entry.waits) {
      with_source(index, [&](LoopSource& source) {
        Work work = source.on_hot();
        has_left(index, work);
        found |= entry.now || work != Work::kWaiting;
        return true;
      });
      *directly |= entry.now;
    } else if (entry.until > now && !by_epoll) {
      found |= with_source(index, [](LoopSource& source) { return source.on_spin(); });
      *directly = true;
    }
  }
  asked_.end_round();
  return found;
}

void LoopSources::has_left(uint32_t index, Work work) {
  if (sources_[index] == nullptr) return;  // it has gone
  if (work == Work::kMore) asked_.ask_now(index);
  if (work == Work::kWaiting) asked_.ask_waiting(index);
}

bool LoopSources::finish_some() {
  bool found = false;
  for (auto finish = unfinished_.begin(); finish != unfinished_.end();) {
    const bool over = (*finish)();
    finish = over ? unfinished_.erase(finish) : std::next(finish);
    found |= over;
  }
  return found;
}

// Whoever drives may be a caller that waits for something else: what a source throws ends that
// source and goes no further.
template <class F>
bool LoopSources::with_source(uint32_t index, F&& f) {
  if (index >= sources_.size()) return false;
  std::shared_ptr<LoopSource> source = sources_[index];
  if (source == nullptr) return false;
  try {
    return f(*source);
  } catch (...) {
    source->on_failure(caught(TCPX_BLAST_PEER));
    return false;
  }
}

bool LoopSources::wake_source(uint32_t index) {
  return with_source(index, [](LoopSource& source) {
    source.on_wake();
    return true;
  });
}

void LoopSources::handle(const epoll_event& event) {
  if (event.data.u64 == EventSet::kSignal) return;
  with_source(static_cast<uint32_t>(event.data.u64), [&](LoopSource& source) {
    source.on_events(event.events);
    return true;
  });
}

Status LoopSources::add(int fd, std::shared_ptr<LoopSource> source, uint32_t* index,
                        uint64_t owner) {
  assert_inside();
  if (free_sources_.empty()) {
    if (sources_.size() == kMaxSources)
      return Status(TCPX_LIMIT, TCPX_BLAST_LANE, "65536 lanes on one progress loop");
    // Room first, so that nothing is allocated when a source is asked or leaves.
    size_t room = sources_.capacity() > sources_.size() ? sources_.capacity()
                                                        : std::max<size_t>(16, 2 * sources_.size());
    free_sources_.reserve(room);
    asked_.reserve(room);
    turns_.reserve(room);
    sources_.reserve(room);
    free_sources_.push_back(static_cast<uint32_t>(sources_.size()));
    sources_.emplace_back();
  }
  uint32_t slot = free_sources_.back();
  if (Status status = events_.add(fd, slot); !status) return status;
  free_sources_.pop_back();
  sources_[slot] = std::move(source);
  turns_.add(slot, owner);
  *index = slot;
  return {};
}

void LoopSources::remove(uint32_t index, int fd) {
  assert_inside();
  events_.remove(fd);
  sources_[index].reset();
  turns_.remove(index);
  asked_.forget(index);
  free_sources_.push_back(index);
}

}  // namespace tcpx
