// A lane's chunks between memory and slots, and what their ends mean.
#include <algorithm>

#include "base/text.h"
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

namespace {

// While no slot is free the peer's pings are not read, and while what has arrived is being moved a
// plugin may get no further. This often the peer hears that we live all the same, or four times as
// often as it could give the lane up.
constexpr Nanos kSignOfLife = 250 * kMilli;

}  // namespace

// A chunk has its slot before it leaves its queue: there other lanes can still have it. Which one
// comes next is not known, unless it was dealt.
bool PeerLane::may_take_chunk_staged() {
  bool may = moves_.starved() == 0;
  if (!may && load_.dealt.load(std::memory_order_acquire)) {
    const Plan& plan = dealt_work_.transfer->plan;
    may = plan.op == TCPX_READ ||
          (moves_.starved() & mask_of(plan.chunks[dealt_work_.chunk].local)) == 0;
  }
  wants_send_slot_ = !may;
  if (!may) loop_.make_waiting(lane_->source_index());  // the slots may be other lanes'
  return may;
}

// Out of its memory first, where that is not the lane's to read.
void PeerLane::queue_payload(TxFrame* frame) {
  if (!stages(*frame)) return lane_->queue(frame);
  moves_.fill(frame);
  look_at_moves_soon();
}

// Where the lane receives it. False: that takes a slot, and none is free.
bool PeerLane::land(RxChunk* chunk) {
  const bool in_place =
      chunk->header.payload_bytes == 0 || (!moves_.stages(chunk->place) && lane_->reaches(*chunk));
  if (!in_place) return moves_.land_in_slot(chunk);
  moves_.land_in_place(chunk);
  return true;
}

void PeerLane::look_at_moves_soon() {
  if (moves_.run_by_hand()) return loop_.make_hot(lane_->source_index());
  loop_.make_waiting(lane_->source_index());
  if (moves_.running() > 0) loop_.move_begun();
}

Work PeerLane::advance_idle() {
  advance_moves();
  look_at_fences();
  if (!open()) return Work::kNone;
  if (wants_slot_ && moves_.may_receive()) lane_->resume_reading(ReadHold::kNoSlot);
  if (wants_slot_ || lane_->moving() > 0) keep_alive_full();
  wants_send_slot_ = wants_send_slot_ && moves_.starved() != 0;
  if (moves_.run_by_hand()) return Work::kMore;
  return nothing_moves() ? Work::kNone : Work::kWaiting;
}

// A pong that answers no ping.
void PeerLane::keep_alive_full() {
  const Nanos often = std::min(kSignOfLife, shared_.options.lane_timeout / 4);
  if (now_ns() - lane_->counters().last_send.load(std::memory_order_relaxed) < often) return;
  wire::Header pong;
  pong.type = wire::FrameType::kPong;
  pong.transfer = payload_received_;
  send_small(pong);
}

void PeerLane::advance_moves() {
  std::string failed;
  while (TxFrame* frame = moves_.next_filled(&failed)) {
    filled(frame, failed);
    failed.clear();
  }
  while (RxChunk* chunk = moves_.next_placed(&failed)) {
    if (!failed.empty())
      chunk->refusal =
          copy_failed(chunk->header, chunk->header.type == wire::FrameType::kData, failed);
    failed.clear();
    placed(chunk);
  }
}

// Of a lane that is closed. Those by hand come to their end here and now.
void PeerLane::finish_moves() {
  do advance_moves();
  while (moves_.run_by_hand());
  lane_->look_at_moves();
}

void PeerLane::filled(TxFrame* frame, const std::string& failed) {
  const wire::Header header = frame->header;
  const bool ours = header.type == wire::FrameType::kWrite;
  ChunkOut* entry = ours ? window_.find(header.transfer, header.chunk) : nullptr;
  if (open() && failed.empty()) {
    if (entry != nullptr) entry->state.step(ChunkOut::State::kQueued);
    return lane_->queue(frame);
  }
  if (!ours) load_.serving.fetch_sub(1, std::memory_order_relaxed);
  if (entry != nullptr) entry->frame = nullptr;
  drop_frame(frame);
  if (failed.empty()) return;  // the lane has ended: its chunks go elsewhere
  const tcpx_code code = copy_failed(header, ours, failed);
  if (!ours) refuse_read(header, code);
  if (entry != nullptr) {
    behind_.sent = {};  // what follows is not behind it
    settle(*entry, code);
  }
}

tcpx_code PeerLane::on_move_failed(RxChunk* chunk, const std::string& why) {
  return copy_failed(chunk->header, chunk->header.type == wire::FrameType::kData,
                     why.empty() ? "the copy failed" : why);
}

// Of our own transfers: they end and say why. Of the peer's only the code gets there.
tcpx_code PeerLane::copy_failed(const wire::Header& header, bool ours, const std::string& why) {
  ChunkOut* entry = ours ? window_.find(header.transfer, header.chunk) : nullptr;
  if (entry != nullptr && entry->transfer != nullptr)
    peer_.transfers().fail(entry->transfer, entry->transfer_id,
                           transfer_error(TCPX_COPY_FAILED, why));
  if (entry == nullptr && copy_lines_.allow(now_ns(), shared_.log))
    shared_.log.error("peer {} ({}): {} by the peer failed: {}", peer_.id(), escaped(peer_.name()),
                      header.type == wire::FrameType::kWrite ? "a WRITE" : "a READ", why);
  return TCPX_COPY_FAILED;
}

}  // namespace tcpx
