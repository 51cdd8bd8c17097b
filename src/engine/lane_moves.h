// The moves of one lane: its chunks between memory and slots, both ways. In the exclusive section
// of the lane's loop.
//
// Out: a frame waits for a slot (kData only: a WRITE has one before it leaves the queue), is
// filled, and leaves. In: a chunk has its slot before its payload is read, and is placed. None
// waits for the move of another, nor for a slot of another place: what arrives behind a chunk that
// finds none would, so that one lands in spare memory after a short while.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/slot_share.h"
#include "memory/mover.h"
#include "path/lane.h"
#include "path/lane_traits.h"

namespace tcpx {

class LaneMoves {
 public:
  // `mover`: null where nothing is moved. `share`: of the session, on this loop.
  LaneMoves(Mover* mover, uint32_t window, const LaneTraits& traits,
            std::shared_ptr<SlotShare> share);

  // Whether memory of this place can be reached at all; without a mover nobody asks.
  bool serves(const Place& place) const {
    return mover_ == nullptr || places_.has(place) || (mover_->serves() & mask_of(place)) != 0;
  }
  // Places whose chunks pass through slots; most lanes have none.
  PlaceMask staged() const {
    if (mover_ == nullptr) return 0;
    return mover_->staged() | (places_.has(Place{}) ? 0 : kHostBit);
  }
  bool stages(const Place& place) const { return (staged() & mask_of(place)) != 0; }
  // Of those, where a chunk may not leave its queue: there is no slot for it.
  PlaceMask starved() const { return staged() == 0 ? 0 : starved_places(); }

  // ---- out ----
  // The frame's payload lies where it has to pass through a slot.
  void fill(TxFrame* frame);
  // One that had no slot and has one now; nullptr: none.
  TxFrame* next_with_slot();
  // One whose payload is in a slot now; nullptr: none. `end`: of its move.
  TxFrame* next_filled(MoveEnd* end);
  // Takes back one that has no slot yet; false: it has.
  bool unwait(TxFrame* frame);
  void wait_no_more() { waiting_.clear(); }

  // ---- in ----
  // Where the chunk, resolved, is to land.
  void land_in_place(RxChunk* chunk) {
    chunk->landing = chunk->destination;
    chunk->state.step(RxChunk::State::kLanding);
  }
  bool land_in_slot(RxChunk* chunk);  // false: none is free
  // Whether it is worth while that the chunk which found none asks again.
  bool may_receive() const;
  // Nothing of that size ever gets a slot.
  bool too_large(const Place& place, uint64_t bytes) const {
    return stages(place) && bytes > mover_->most_bytes(place);
  }
  // All of it has arrived. True: nothing is to be moved.
  bool place(RxChunk* chunk);
  RxChunk* next_placed(MoveEnd* end);
  // Where a chunk that is being placed waits for a slot still: it is not placed any more, but is
  // refused with `why` when it is looked at. False: it is in the memory, or may be.
  bool take_back(RxChunk* chunk, tcpx_code why);
  void take_back_writes(tcpx_code why);
  template <class F>
  void each_placing(F&& f) const {
    for (RxChunk* chunk : placing_) f(chunk);
  }

  // ---- both ----
  // Something moves, or waits for a slot: look again soon.
  bool any() const { return !waiting_.empty() || !filling_.empty() || !placing_.empty(); }
  bool none_placing() const { return placing_.empty(); }
  // Moves that touch memory now.
  size_t running() const { return running_; }
  // They go on only while they are looked at.
  bool run_by_hand() const { return running_ > 0 && mover_->by_hand(); }
  void give_back(TxFrame* frame);
  void give_back(RxChunk* chunk);

 private:
  using enum SlotUse;
  bool may_take(SlotUse use, const Place& place) const {
    const size_t free = mover_->free_slots(use, place);
    return free > 0 && (alone_ || share_->may_take(use, place, free));
  }
  PlaceMask starved_places() const;
  bool is_waited_for(const Place& place) const;
  uint8_t* take(SlotUse use, uint64_t bytes, const Place& place);
  void give(SlotUse use, uint8_t** slot, const Place& place);
  uint8_t* take_spare(uint64_t bytes, const Place& place);
  bool waits_long() const;
  void begin(TxFrame* frame, uint8_t* slot);
  bool over(uint64_t* move, MoveEnd* end);
  template <class Moved>
  Moved* take_over(std::vector<Moved*>* list, MoveEnd* end);

  Mover* const mover_;
  const PlaceKinds places_;  // that the path serves without
  const bool alone_;         // no other lane uses the mover
  std::vector<TxFrame*> waiting_, filling_;
  std::vector<RxChunk*> placing_;
  size_t running_ = 0;
  const std::shared_ptr<SlotShare> share_;
  // What has arrived and found no slot: of which place, and since when. Of places in `without_` it
  // has waited long enough, and none has come back since.
  PlaceMask wanted_ = 0, without_ = 0;
  Nanos wanted_since_ = 0;
};

}  // namespace tcpx
