#include "path/net/comm_proof.h"

#include <utility>

namespace tcpx::net {

// ---- ours ----------------------------------------------------------------------------------

Status CommProof::show(const wire::NetSetup& peers_offer, SendComm& comm) {
  if (out_.slot == nullptr) {
    if (!wire::net_proof(settings_.session_key, settings_.lane, peers_offer, &out_.proof))
      return setup_error("cannot compute the proof for the peer's comm");
    if (Status status = take_slot(SlotUse::kSend, &out_); !status) return status;
    out_.ticket = settings_.mover->begin_out({&out_.memory, 1}, {}, out_.slot);
  }
  bool over = false;
  if (Status status = look(&out_, &over); !status || !over) return status;
  frame_.header.payload_bytes = out_.proof.size();
  frame_.slot = out_.slot;
  frame_.payload = {{out_.slot, out_.proof.size()}};
  frame_.regions.assign(settings_.mover->slot_extent(out_.slot));
  if (!comm.reaches(frame_)) return setup_error(comm.refusal());
  comm.add(&frame_);
  shown_ = true;
  return {};
}

// ---- the peer's ----------------------------------------------------------------------------

Status CommProof::expect(ReceiveComm& comm) {
  if (Status status = take_slot(SlotUse::kReceive, &in_); !status) return status;
  chunk_.header.payload_bytes = in_.proof.size();
  chunk_.slot = in_.slot;
  chunk_.landing = {{in_.slot, in_.proof.size()}};
  chunk_.regions.assign(settings_.mover->slot_extent(in_.slot));
  for (auto step : {RxChunk::State::kHead, RxChunk::State::kLanding}) chunk_.state.step(step);
  comm.add(&chunk_);
  return comm.poll(*this);
}

Status CommProof::arrived(RxChunk* chunk) {
  if (chunk->refusal != TCPX_OK) return setup_error("the peer's proof could not be unpacked");
  here_ = true;
  return {};
}

Status CommProof::check(const wire::NetSetup& our_offer, bool* right) {
  if (in_.ticket == 0) in_.ticket = settings_.mover->begin_in(in_.slot, {&in_.memory, 1}, {});
  bool over = false;
  if (Status status = look(&in_, &over); !status || !over) return status;
  give_slot(SlotUse::kReceive, &in_);
  wire::Digest expected;
  if (!wire::net_proof(settings_.session_key, settings_.lane, our_offer, &expected) ||
      !wire::equal_constant_time(expected, in_.proof))
    return setup_error("whoever connected to the plugin's socket does not know the session's key");
  *right = true;
  return {};
}

// ---- slots and moves -----------------------------------------------------------------------

Status CommProof::take_slot(SlotUse use, Move* move) {
  move->slot = settings_.mover->take_slot(use, move->proof.size(), {});
  return move->slot != nullptr ? Status() : setup_error("no slot for the proof of a comm");
}

void CommProof::give_slot(SlotUse use, Move* move) {
  if (move->slot == nullptr || move->ticket != 0) return;
  settings_.mover->give_slot(use, std::exchange(move->slot, nullptr));
}

Status CommProof::look(Move* move, bool* over) {
  MoveEnd end;
  MoveState state = settings_.mover->look(move->ticket, &end);
  *over = state != MoveState::kRunning;
  if (*over) move->ticket = 0;
  return state != MoveState::kFailed ? Status()
                                     : setup_error("the proof of a comm was not moved: " + end.why);
}

void CommProof::look_at_moves() {
  for (Move* move : {&out_, &in_}) {
    for (bool over = move->ticket == 0; !over;) {
      (void)look(move, &over).ok();
      if (!settings_.mover->by_hand()) break;
    }
  }
}

}  // namespace tcpx::net
