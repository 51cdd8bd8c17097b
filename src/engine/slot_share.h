// What the lanes of one session on one loop hold of its mover's slots. In the exclusive section of
// the loop.
//
// A session gets no more than are left for the others, however many lanes it has: what a peer does
// not read, or sends byte by byte, keeps its slots.
#pragma once

#include <array>
#include <vector>

#include "memory/mover.h"

namespace tcpx {

class SlotShare {
 public:
  size_t held(SlotUse use, const Place& place) const {
    const size_t at = index_of(place);
    return at < held_.size() ? held_[at][index(use)] : 0;
  }
  bool may_take(SlotUse use, const Place& place, size_t free) const {
    const size_t has = held(use, place);
    return free > 0 && (has == 0 || has < free);
  }
  void make_room(const Place& place) {
    if (held_.size() <= index_of(place)) held_.resize(index_of(place) + 1);
  }
  void took(SlotUse use, const Place& place) noexcept { ++held_[index_of(place)][index(use)]; }
  void gave(SlotUse use, const Place& place) noexcept { --held_[index_of(place)][index(use)]; }

 private:
  static size_t index(SlotUse use) { return static_cast<size_t>(use); }
  // The host's first.
  static size_t index_of(const Place& place) { return place.is_host() ? 0 : 1 + place.device; }

  std::vector<std::array<size_t, 2>> held_{1};
};

}  // namespace tcpx
