// Whom a loop asks by itself, in every round, without an event: sources that have more to do, that
// wait for what no event announces, or whose next bytes are due.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "path/tuning.h"

namespace tcpx {

class AskList {
 public:
  struct Entry {
    uint32_t source = 0;
    bool now = false;    // has more to do: the loop does not sleep
    bool waits = false;  // for something that keeps no loop awake
    Nanos until = 0;     // its bytes are due: it is asked instead of epoll until then
  };

  // Room first, so that nothing is allocated when a source is to be asked.
  void reserve(size_t sources) {
    entries_.reserve(sources);
    round_.reserve(sources);
    late_.reserve(sources);
  }
  void ask_now(uint32_t source) { entry(source).now = true; }
  void ask_waiting(uint32_t source) { entry(source).waits = true; }
  // Of sources that are asked for this reason alone only the latest ones are.
  void ask_until(uint32_t source, Nanos until) {
    entry(source).until = until;
    auto due = [](const Entry& e) { return !e.now && !e.waits; };
    if (entries_.size() <= tuning::kMostAsked) return;
    if (std::count_if(entries_.begin(), entries_.end(), due) <= std::ptrdiff_t{tuning::kMostAsked})
      return;
    entries_.erase(std::find_if(entries_.begin(), entries_.end(),
                                [&](const Entry& e) { return due(e) && e.source != source; }));
  }
  void forget(uint32_t source) {
    std::erase_if(entries_, [&](const Entry& e) { return e.source == source; });
    for (Entry& e : round_)
      if (e.source == source) e = {source, false, false, 0};
  }

  bool empty() const { return entries_.empty(); }
  bool any_now() const {
    return std::any_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.now; });
  }
  bool any_waits() const {
    return std::any_of(entries_.begin(), entries_.end(), [](const Entry& e) { return e.waits; });
  }

  // Takes everybody off the list, to be asked once. Who is to be asked again goes back on it.
  std::span<const Entry> begin_round() {
    round_.swap(entries_);
    return round_;
  }
  // Its owner has had its turn: it is among the first of the next round.
  void put_off(const Entry& e) { late_.push_back(e); }
  void end_round() {
    round_.clear();
    for (; !late_.empty(); late_.pop_back()) {
      Entry late = entry(late_.back().source);
      late.now = true;
      late.waits |= late_.back().waits;
      late.until = std::max(late.until, late_.back().until);
      std::erase_if(entries_, [&](const Entry& e) { return e.source == late.source; });
      entries_.insert(entries_.begin(), late);
    }
  }

 private:
  Entry& entry(uint32_t source) {
    for (Entry& e : entries_)
      if (e.source == source) return e;
    return entries_.emplace_back(Entry{source, false, false, 0});
  }

  std::vector<Entry> entries_, round_, late_;
};

}  // namespace tcpx
