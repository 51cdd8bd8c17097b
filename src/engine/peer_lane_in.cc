// The peer's chunks on a lane, and all payload that arrives: where it lands, and what its end
// means.
#include "base/text.h"
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

// ---- the peer's chunks ---------------------------------------------------------------------

// All of it in one place: descriptions of regions say where they lie, so whoever mixes has not kept
// to them.
tcpx_code PeerLane::resolve(const wire::Header& header, std::span<const wire::Piece> pieces,
                            uint32_t access, ResolvedParts out) {
  RegionUser user{peer_.id(), header.aux};
  for (size_t i = 0; i < pieces.size(); ++i) {
    Resolved memory;
    tcpx_code code = shared_.regions.resolve(pieces[i], access, user, &memory);
    if (code == TCPX_OK && i > 0 && memory.place != *out.place) code = TCPX_INVALID_ARGUMENT;
    if (code != TCPX_OK) {
      count_refusal(code);
      return code;
    }
    *out.place = memory.place;
    if (pieces[i].length == 0) continue;
    out.regions->add(out.parts->size(), memory.region);
    out.parts->push_back({memory.at, pieces[i].length});
  }
  return TCPX_OK;
}

void PeerLane::write_head(RxChunk* chunk) {
  const tcpx_code code = resolve(chunk->header, chunk->pieces, TCPX_REMOTE_WRITE,
                                 {&chunk->destination, &chunk->place, &chunk->regions});
  if (code != TCPX_OK) chunk->drop(code);
}

void PeerLane::write_done(RxChunk* chunk, tcpx_code code) {
  wire::Header ack;
  ack.type = wire::FrameType::kAck;
  ack.status = static_cast<uint16_t>(code);
  ack.transfer = chunk->header.transfer;
  ack.chunk = chunk->header.chunk;
  --writes_in_;
  send_small(ack);
}

Status PeerLane::serve_read(const wire::Header& header, std::span<const wire::Piece> pieces) {
  // The peer may ask again when its data has arrived; our path may say later that it is sent.
  if (serving() >= window_.size() + lane_->sends_done_late())
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("more than {} reads outstanding on one lane", serving()));
  TxFrame* frame = chunk_frames_.take();
  frame->header.type = wire::FrameType::kData;
  frame->header.transfer = header.transfer;
  frame->header.chunk = header.chunk;
  tcpx_code code =
      resolve(header, pieces, TCPX_REMOTE_READ, {&frame->payload, &frame->place, &frame->regions});
  if (code != TCPX_OK) {
    drop_frame(frame);
    refuse_read(header, code);
    return {};
  }
  frame->header.payload_bytes = header.payload_bytes;
  frame->pieces.assign(pieces.begin(), pieces.end());
  load_.serving.fetch_add(1, std::memory_order_relaxed);
  queue_payload(frame);
  return {};
}

void PeerLane::refuse_read(const wire::Header& header, tcpx_code code) {
  wire::Header failed;
  failed.type = wire::FrameType::kReadFailed;
  failed.status = static_cast<uint16_t>(code);
  failed.transfer = header.transfer;
  failed.chunk = header.chunk;
  send_small(failed);
}

// ---- payload that arrives --------------------------------------------------------------------

Status PeerLane::on_head(const wire::Header& header, std::span<const wire::Piece> pieces,
                         RxChunk** out) {
  // In the stream they come one by one. Beside it their heads can run ahead, as far as the window.
  bool is_write = header.type == wire::FrameType::kWrite;
  if (is_write && writes_in_ >= window_.size())
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("more than {} writes outstanding on one lane", writes_in_));
  RxChunk* chunk = chunks_.take();
  chunk->state.step(RxChunk::State::kHead);
  chunk->header = header;
  Status status;
  if (header.is_notice()) {
    notice_head(chunk);
  } else if (is_write) {
    chunk->pieces.assign(pieces.begin(), pieces.end());
    write_head(chunk);
  } else {
    status = data_head(header, chunk);
  }
  if (!status) {
    drop_chunk(chunk);
    return status;
  }
  wants_slot_ = chunk->state == RxChunk::State::kHead && !land(chunk);
  if (wants_slot_) {  // it comes again: resume_reading()
    if (!is_write) data_comes_later(header);
    drop_chunk(chunk);
    loop_.make_waiting(lane_->source_index());
    return {};
  }
  writes_in_ += is_write;
  *out = chunk;
  return {};
}

Status PeerLane::on_payload(RxChunk* chunk, const wire::Trailer& trailer) {
  payload_received_ += chunk->header.payload_bytes;
  if (chunk->header.is_notice()) {
    chunk->state.step(RxChunk::State::kArrived);
    notice_received(chunk);
    return {};
  }
  if (trailer.status != TCPX_OK && chunk->refusal == TCPX_OK)
    chunk->refusal = static_cast<tcpx_code>(trailer.status);
  if (moves_.place(chunk)) {
    placed(chunk);
    return {};
  }
  if (chunk->header.type == wire::FrameType::kData)
    window_.find(chunk->header.transfer, chunk->header.chunk)
        ->state.step(ChunkOut::State::kPlacing);
  look_at_moves_soon();
  return {};
}

// The chunk's bytes are in place (or it was refused): tell who waits.
void PeerLane::placed(RxChunk* chunk) {
  tcpx_code code = chunk->refusal;
  if (chunk->header.type == wire::FrameType::kWrite) {
    if (code == TCPX_OK)
      behind_.placed.add(chunk->header.transfer);
    else
      behind_.placed = {};
    write_done(chunk, code);
  } else {
    data_placed(*chunk);
  }
  if (code == TCPX_OK) shared_.counters.chunks_received.fetch_add(1, std::memory_order_relaxed);
  drop_chunk(chunk);
}

}  // namespace tcpx
