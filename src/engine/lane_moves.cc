#include "engine/lane_moves.h"

#include <algorithm>
#include <utility>

namespace tcpx {

namespace {

// What arrived waits so long for a slot, and all behind it on the lane with it. Slots of a GPU that
// is merely busy come back sooner.
constexpr Nanos kSlotPatience = 5 * kMilli;

}  // namespace

LaneMoves::LaneMoves(Mover* mover, uint32_t window, const LaneTraits& traits,
                     std::shared_ptr<SlotShare> share)
    : mover_(mover), places_(traits.places), alone_(traits.own_loop()), share_(std::move(share)) {
  placing_.reserve(window + 1);
  if (mover == nullptr) return;
  waiting_.reserve(2 * window);
  filling_.reserve(2 * window);
}

// Whether a move is not (or no longer) running.
bool LaneMoves::over(uint64_t* move, MoveEnd* end) {
  if (*move == 0) return true;
  MoveState state = mover_->look(*move, end);
  if (state == MoveState::kRunning) return false;
  if (state == MoveState::kFailed && end->why.empty()) end->why = "the copy failed";
  *move = 0;
  --running_;
  return true;
}

// The first whose move is not running; nullptr: there is none. A move may take long (a kernel that
// does not start, a GPU that hangs): those behind it do not wait. By hand it would only be more
// work at a time.
template <class Moved>
Moved* LaneMoves::take_over(std::vector<Moved*>* list, MoveEnd* end) {
  for (auto at = list->begin(); at != list->end(); ++at) {
    Moved* moved = *at;
    if (over(&moved->move, end)) {
      list->erase(at);
      return moved;
    }
    if (mover_->by_hand()) break;
  }
  return nullptr;
}

// ---- out -----------------------------------------------------------------------------------

void LaneMoves::fill(TxFrame* frame) {
  uint8_t* slot = is_waited_for(frame->place)
                      ? nullptr
                      : take(kSend, frame->header.payload_bytes, frame->place);
  if (slot == nullptr)
    waiting_.push_back(frame);
  else
    begin(frame, slot);
}

void LaneMoves::begin(TxFrame* frame, uint8_t* slot) {
  frame->slot = slot;
  frame->memory.swap(frame->payload);
  filling_.reserve(filling_.size() + 1);  // nothing may fail once the move has begun
  frame->move = mover_->begin_out(frame->memory, frame->place, slot);
  filling_.push_back(frame);
  ++running_;
}

// Of each place in the order in which they came.
TxFrame* LaneMoves::next_with_slot() {
  PlaceMask none_of = 0;
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    TxFrame* frame = *at;
    const PlaceMask place = mask_of(frame->place);
    if ((none_of & place) != 0) continue;
    uint8_t* slot = take(kSend, frame->header.payload_bytes, frame->place);
    none_of |= slot == nullptr ? place : 0;
    if (slot == nullptr) continue;
    waiting_.erase(at);
    begin(frame, slot);
    return frame;
  }
  return nullptr;
}

TxFrame* LaneMoves::next_filled(MoveEnd* end) {
  TxFrame* frame = take_over(&filling_, end);
  if (frame == nullptr) return nullptr;
  frame->payload.assign(1, {frame->slot, frame->header.payload_bytes});
  frame->regions.assign(mover_->slot_extent(frame->slot));
  frame->copied += frame->header.payload_bytes;
  if (!end->failed()) frame->sending.begin(RangeName::kSend, frame->header.payload_bytes);
  return frame;
}

bool LaneMoves::unwait(TxFrame* frame) {
  return std::erase(waiting_, frame) > 0;
}

// ---- in ------------------------------------------------------------------------------------

bool LaneMoves::land_in_slot(RxChunk* chunk) {
  const uint64_t bytes = chunk->header.payload_bytes;
  const PlaceMask place = mask_of(chunk->place);
  chunk->slot = take(kReceive, bytes, chunk->place);
  if (chunk->slot == nullptr) {
    chunk->slot = take_spare(bytes, chunk->place);
    if (chunk->slot == nullptr) return false;
    chunk->spare = true;
    chunk->copied += bytes;
  } else {
    without_ &= ~place;
  }
  wanted_ = 0;
  chunk->landing.assign(1, {chunk->slot, bytes});
  chunk->state.step(RxChunk::State::kLanding);
  chunk->regions.assign(chunk->spare ? RegionExtent{} : mover_->slot_extent(chunk->slot));
  chunk->receiving.begin(RangeName::kReceive, bytes);
  return true;
}

bool LaneMoves::may_receive() const {
  return wanted_ == 0 || may_take(kReceive, first_of(wanted_)) || waits_long();
}

bool LaneMoves::waits_long() const {
  return now_ns() - wanted_since_ >= kSlotPatience;
}

uint8_t* LaneMoves::take_spare(uint64_t bytes, const Place& place) {
  const PlaceMask of = mask_of(place);
  if ((without_ & of) == 0 && wanted_ == of && waits_long()) without_ |= of;
  uint8_t* spare = (without_ & of) != 0 ? mover_->take_spare(bytes, place) : nullptr;
  if (spare == nullptr && (wanted_ != of || waits_long())) {
    wanted_ = of;
    wanted_since_ = now_ns();
  }
  return spare;
}

bool LaneMoves::place(RxChunk* chunk) {
  if (chunk->refusal == TCPX_OK && chunk->slot != nullptr) {
    chunk->receiving.end();
    placing_.reserve(placing_.size() + 1);
    chunk->move = mover_->begin_in(chunk->slot, chunk->destination, chunk->place);
    chunk->state.step(RxChunk::State::kPlacing);
    placing_.push_back(chunk);
    ++running_;
    return false;
  }
  chunk->state.step(RxChunk::State::kArrived);
  return true;
}

RxChunk* LaneMoves::next_placed(MoveEnd* end) {
  RxChunk* chunk = take_over(&placing_, end);
  if (chunk != nullptr) chunk->state.step(RxChunk::State::kArrived);
  return chunk;
}

bool LaneMoves::take_back(RxChunk* chunk, tcpx_code why) {
  if (chunk->move == 0) return true;
  if (!chunk->spare || !mover_->take_back(chunk->move)) return false;
  chunk->move = 0;
  chunk->refusal = why;
  --running_;
  return true;
}

void LaneMoves::take_back_writes(tcpx_code why) {
  for (RxChunk* chunk : placing_)
    if (chunk->header.type == wire::FrameType::kWrite) (void)take_back(chunk, why);
}

// ---- slots ---------------------------------------------------------------------------------

PlaceMask LaneMoves::starved_places() const {
  PlaceMask starved = 0;
  for (PlaceMask left = staged(); left != 0; left &= left - 1) {
    const Place place = first_of(left);
    if (is_waited_for(place) || !may_take(kSend, place)) starved |= mask_of(place);
  }
  return starved;
}

// By data that the peer asked for.
bool LaneMoves::is_waited_for(const Place& place) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&place](const TxFrame* frame) { return frame->place == place; });
}

uint8_t* LaneMoves::take(SlotUse use, uint64_t bytes, const Place& place) {
  if (!may_take(use, place)) return nullptr;
  share_->make_room(place);
  uint8_t* slot = mover_->take_slot(use, bytes, place);
  if (slot != nullptr) share_->took(use, place);
  return slot;
}

void LaneMoves::give(SlotUse use, uint8_t** slot, const Place& place) {
  mover_->give_slot(use, std::exchange(*slot, nullptr));
  share_->gave(use, place);
}

void LaneMoves::give_back(TxFrame* frame) {
  if (frame->slot == nullptr) return;
  frame->sending.end();
  give(kSend, &frame->slot, frame->place);
}

void LaneMoves::give_back(RxChunk* chunk) {
  if (chunk->slot == nullptr) return;
  chunk->receiving.end();
  if (!chunk->spare) return give(kReceive, &chunk->slot, chunk->place);
  mover_->give_spare(std::exchange(chunk->slot, nullptr), chunk->place);
  chunk->spare = false;
}

}  // namespace tcpx
