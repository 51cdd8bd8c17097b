// Our chunks on a lane: sent, answered, settled; and the data of our READs.
#include "base/text.h"
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

// Returns how much payload the stream takes with it.
uint64_t PeerLane::send_chunk(ChunkWork work) {
  TransferState& transfer = *work.transfer;
  const Chunk& chunk = transfer.plan.chunks[work.chunk];
  const bool is_read = transfer.plan.op == TCPX_READ;
  TxFrame* frame = chunk_frames_.take();
  frame->header.type = is_read ? wire::FrameType::kRead : wire::FrameType::kWrite;
  frame->header.transfer = work.transfer_id;
  frame->header.chunk = work.chunk;
  frame->header.piece_count = chunk.pieces;
  frame->header.payload_bytes = chunk.bytes;
  frame->header.aux = work.epoch;
  scratch_.clear();
  transfer.plan.remote_pieces(chunk, &scratch_);
  if (chunk.pieces == 1) {
    frame->header.piece = scratch_[0];
  } else {
    frame->table.resize(chunk.pieces * wire::kPieceBytes);
    wire::encode_pieces(scratch_, frame->table.data());
  }
  if (!is_read) transfer.plan.local_memory(chunk, &frame->payload, &frame->regions);
  frame->place = chunk.local;
  if (!is_read) behind_.sent.add(work.transfer_id);

  std::shared_ptr<Notice> notice = std::move(work.notice);
  ChunkOut& entry =
      window_.take(std::move(work), chunk.bytes, is_read,
                   stages(*frame) ? ChunkOut::State::kFilling : ChunkOut::State::kQueued, now_ns());
  entry.frame = frame;
  load_.in_flight.store(window_.used(), std::memory_order_relaxed);
  shared_.counters.chunks_live.fetch_add(1, std::memory_order_relaxed);
  if (!is_read) shared_.counters.chunks_sent.fetch_add(1, std::memory_order_relaxed);
  queue_payload(frame);
  if (notice != nullptr) send_notice_behind(std::move(notice), entry);
  return frame->has_tail() ? chunk.bytes : 0;
}

// All of it has left.
void PeerLane::chunk_sent(ChunkOut& entry) {
  entry.copied = entry.frame->copied;
  entry.frame = nullptr;
  if (entry.state == ChunkOut::State::kAnswered) return settle(entry, entry.answer);
  entry.state.step(ChunkOut::State::kOut);
}

void PeerLane::settle(ChunkOut& entry, tcpx_code code) {
  ChunkWork work = window_.settle(entry, code == TCPX_OK, now_ns());
  load_.in_flight.store(window_.used(), std::memory_order_relaxed);
  shared_.counters.chunks_live.fetch_sub(1, std::memory_order_relaxed);
  if (work.transfer) peer_.transfers().settle(work, code, "the peer");
}

// Only to what is out. Beside the stream a payload may be there before our end of the path knows
// that it is.
Status PeerLane::answer_received(const wire::Header& header) {
  ChunkOut* entry = window_.find(header.transfer, header.chunk);
  const bool read_failed = header.type == wire::FrameType::kReadFailed;
  const bool is_due =
      entry != nullptr && entry->is_read == read_failed && entry->state == ChunkOut::State::kOut;
  const bool overtook = entry != nullptr && !entry->is_read && !read_failed &&
                        entry->state == ChunkOut::State::kQueued && entry->frame->beside &&
                        entry->frame->started;
  if (!is_due && !overtook)
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("answer for chunk {} of transfer {}, which is not outstanding",
                           header.chunk, header.transfer));
  const auto code = static_cast<tcpx_code>(header.status);
  if (is_due) {
    settle(*entry, code);
  } else {
    entry->state.step(ChunkOut::State::kAnswered);
    entry->answer = code;
  }
  return {};
}

// Where the data of one of our READ chunks goes.
Status PeerLane::data_head(const wire::Header& header, RxChunk* chunk) {
  ChunkOut* entry = window_.find(header.transfer, header.chunk);
  if (entry == nullptr || !entry->is_read || !(entry->state == ChunkOut::State::kOut) ||
      entry->bytes != header.payload_bytes)
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("data for chunk {} of transfer {}, which was not asked for",
                           header.chunk, header.transfer));
  entry->state.step(ChunkOut::State::kArriving);
  entry->landing = chunk;
  if (entry->transfer == nullptr) {  // cancelled meanwhile
    shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    chunk->drop(TCPX_CANCELLED);
    return {};
  }
  const Plan& plan = entry->transfer->plan;
  const Chunk& part = plan.chunks[entry->chunk];
  plan.local_memory(part, &chunk->destination, &chunk->regions);
  chunk->place = part.local;
  return {};
}

// The lane has no place for it now: its head comes again.
void PeerLane::data_comes_later(const wire::Header& header) {
  ChunkOut* entry = window_.find(header.transfer, header.chunk);
  entry->state.step(ChunkOut::State::kOut);
  entry->landing = nullptr;
}

// It is where it belongs, or was dropped.
void PeerLane::data_placed(const RxChunk& chunk) {
  ChunkOut* entry = window_.find(chunk.header.transfer, chunk.header.chunk);
  if (entry == nullptr) return;
  entry->landing = nullptr;
  entry->copied = chunk.copied + (chunk.slot == nullptr ? 0 : chunk.header.payload_bytes);
  settle(*entry, chunk.refusal);
}

}  // namespace tcpx
