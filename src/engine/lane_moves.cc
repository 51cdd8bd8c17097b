#include "engine/lane_moves.h"

#include <algorithm>
#include <utility>

namespace tcpx {

LaneMoves::LaneMoves(Mover* mover, uint32_t window, const LaneTraits& traits)
    : mover_(mover), places_(traits.places), alone_(traits.own_loop()) {
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
  uint8_t* slot =
      waiting_.empty() ? take(kSend, frame->header.payload_bytes, frame->place) : nullptr;
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

TxFrame* LaneMoves::next_with_slot() {
  if (waiting_.empty()) return nullptr;
  TxFrame* frame = waiting_.front();
  uint8_t* slot = take(kSend, frame->header.payload_bytes, frame->place);
  if (slot == nullptr) return nullptr;
  waiting_.erase(waiting_.begin());
  begin(frame, slot);
  return frame;
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
  chunk->slot = take(kReceive, chunk->header.payload_bytes, chunk->place);
  if (chunk->slot == nullptr) return false;
  chunk->landing.assign(1, {chunk->slot, chunk->header.payload_bytes});
  chunk->state.step(RxChunk::State::kLanding);
  chunk->regions.assign(mover_->slot_extent(chunk->slot));
  chunk->receiving.begin(RangeName::kReceive, chunk->header.payload_bytes);
  return true;
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

// ---- slots ---------------------------------------------------------------------------------

PlaceMask LaneMoves::starved_of(SlotUse use) const {
  PlaceMask starved = 0;
  for (PlaceMask left = staged(); left != 0; left &= left - 1) {
    const Place place = first_of(left);
    const bool behind = use == kSend && !waiting_.empty();  // data that the peer asked for
    if (behind || !may_take(use, place)) starved |= mask_of(place);
  }
  return starved;
}

uint8_t* LaneMoves::take(SlotUse use, uint64_t bytes, const Place& place) {
  if (!may_take(use, place)) return nullptr;
  uint8_t* slot = mover_->take_slot(use, bytes, place);
  if (slot != nullptr) ++held_[static_cast<size_t>(use)];
  return slot;
}

void LaneMoves::give(SlotUse use, uint8_t** slot) {
  mover_->give_slot(use, std::exchange(*slot, nullptr));
  --held_[static_cast<size_t>(use)];
}

void LaneMoves::give_back(TxFrame* frame) {
  if (frame->slot == nullptr) return;
  frame->sending.end();
  give(kSend, &frame->slot);
}

void LaneMoves::give_back(RxChunk* chunk) {
  if (chunk->slot == nullptr) return;
  chunk->receiving.end();
  give(kReceive, &chunk->slot);
}

}  // namespace tcpx
