#include "engine/chunks_in.h"

#include <algorithm>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

const char* asked_for(wire::FrameType type) {
  return type == wire::FrameType::kWrite ? "a WRITE" : "a READ";
}

bool lies_in(const std::vector<wire::Piece>& pieces, uint64_t region) {
  return std::any_of(pieces.begin(), pieces.end(),
                     [region](const wire::Piece& piece) { return piece.region == region; });
}

}  // namespace

// What a lane needs at once in ordinary use; more is added when it is first needed, and kept.
ChunksIn::ChunksIn(LaneCore& core, SmallFrames& small, LaneNotices& notices, LaneRefusals& refusals,
                   ChunksOut& out)
    : core_(core), small_(small), notices_(notices), refusals_(refusals), out_(out) {
  chunks_.fill(4);
  chunks_.each([](RxChunk* chunk) {
    for (auto* list : {&chunk->destination, &chunk->landing}) list->reserve(4);
    chunk->pieces.reserve(4);
  });
  frames_.fill(core.window);
  frames_.each([](TxFrame* frame) {
    frame->payload.reserve(4);
    frame->pieces.reserve(4);
  });
}

// ---- payload that arrives --------------------------------------------------------------------

Status ChunksIn::head(const wire::Header& header, std::span<const wire::Piece> pieces,
                      RxChunk** out) {
  // In the stream they come one by one. Beside it their heads can run ahead, as far as the window.
  const bool is_write = header.type == wire::FrameType::kWrite;
  if (is_write && writes_in_ >= core_.window)
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("more than {} writes outstanding on one lane", writes_in_));
  RxChunk* chunk = chunks_.take();
  chunk->state.step(RxChunk::State::kHead);
  chunk->header = header;
  Status status;
  if (header.is_notice())
    notices_.head(chunk);
  else if (is_write)
    write_head(chunk, pieces);
  else
    status = out_.data_head(header, chunk);
  if (!status) {
    give_back(chunk);
    return status;
  }
  const bool waited = wants_slot_;
  wants_slot_ = chunk->state == RxChunk::State::kHead && !land(chunk);
  if (wants_slot_) {  // it comes again: look_for_slot()
    if (!is_write) out_.data_comes_later(header);
    give_back(chunk);
    core_.make_waiting();
    return {};
  }
  if (chunk->spare && header.type == wire::FrameType::kData)
    out_.data_lacks_slot(header);
  else if (waited && header.type == wire::FrameType::kData)
    out_.has_slot(header);
  writes_in_ += is_write;
  *out = chunk;
  return {};
}

void ChunksIn::write_head(RxChunk* chunk, std::span<const wire::Piece> pieces) {
  chunk->pieces.assign(pieces.begin(), pieces.end());
  const tcpx_code code = resolve(chunk->header, pieces, TCPX_REMOTE_WRITE,
                                 {&chunk->destination, &chunk->place, &chunk->regions});
  if (code != TCPX_OK) chunk->drop(code);
}

// All of it in one place: descriptions of regions say where they lie, so whoever mixes has not kept
// to them.
tcpx_code ChunksIn::resolve(const wire::Header& header, std::span<const wire::Piece> pieces,
                            uint32_t access, ResolvedParts out) {
  RegionUser user{core_.peer.id(), header.aux};
  for (size_t i = 0; i < pieces.size(); ++i) {
    Resolved memory;
    tcpx_code code = core_.shared.regions.resolve(pieces[i], access, user, &memory);
    if (code == TCPX_OK && i > 0 && memory.place != *out.place) code = TCPX_INVALID_ARGUMENT;
    if (code != TCPX_OK) {
      refusals_.count(code);
      return code;
    }
    *out.place = memory.place;
    if (pieces[i].length == 0) continue;
    out.regions->add(out.parts->size(), memory.region);
    out.parts->push_back({memory.at, pieces[i].length});
  }
  // What this lane cannot reach in any way: a net plugin of host memory has no slots for a GPU's.
  if (!core_.moves.serves(*out.place)) return TCPX_PATH_UNAVAILABLE;
  return core_.moves.too_large(*out.place, header.payload_bytes) ? TCPX_LIMIT : TCPX_OK;
}

// Where the lane receives it. False: that takes a slot, and none is free.
bool ChunksIn::land(RxChunk* chunk) {
  LaneMoves& moves = core_.moves;
  const bool in_place = chunk->header.payload_bytes == 0 ||
                        (!moves.stages(chunk->place) && core_.lane->reaches(*chunk));
  if (!in_place) return moves.land_in_slot(chunk);
  moves.land_in_place(chunk);
  return true;
}

Status ChunksIn::arrived(RxChunk* chunk, const wire::Trailer& trailer) {
  const wire::Header& header = chunk->header;
  core_.payload_received += header.payload_bytes;
  if (header.is_notice()) {
    notices_.received(chunk);
    give_back(chunk);
    return {};
  }
  if (trailer.status != TCPX_OK && chunk->refusal == TCPX_OK)
    chunk->refusal = static_cast<tcpx_code>(trailer.status);
  if (core_.moves.place(chunk)) {
    placed(chunk);
    return {};
  }
  if (header.type == wire::FrameType::kData) out_.data_moves(header);
  core_.look_at_moves_soon();
  return {};
}

void ChunksIn::placed(RxChunk* chunk) {
  const bool well = chunk->refusal == TCPX_OK;
  if (chunk->header.type == wire::FrameType::kWrite) {
    notices_.write_placed(chunk->header.transfer, well);
    write_done(chunk->header, chunk->refusal);
  } else {
    out_.data_placed(*chunk);
  }
  if (well) core_.shared.counters.chunks_received.fetch_add(1, std::memory_order_relaxed);
  give_back(chunk);
}

void ChunksIn::write_done(const wire::Header& header, tcpx_code code) {
  wire::Header ack;
  ack.type = wire::FrameType::kAck;
  ack.status = static_cast<uint16_t>(code);
  ack.transfer = header.transfer;
  ack.chunk = header.chunk;
  --writes_in_;
  small_.send(ack);
}

// ---- data that the peer asked for ------------------------------------------------------------

Status ChunksIn::serve_read(const wire::Header& header, std::span<const wire::Piece> pieces) {
  // The peer may ask again when its data has arrived; our path may say later that it is sent.
  if (serving() >= core_.window + core_.lane->sends_done_late())
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("more than {} reads outstanding on one lane", serving()));
  TxFrame* frame = frames_.take();
  frame->header.type = wire::FrameType::kData;
  frame->header.transfer = header.transfer;
  frame->header.chunk = header.chunk;
  tcpx_code code =
      resolve(header, pieces, TCPX_REMOTE_READ, {&frame->payload, &frame->place, &frame->regions});
  if (code != TCPX_OK) {
    give_back(frame);
    refuse_read(header, code);
    return {};
  }
  frame->header.payload_bytes = header.payload_bytes;
  frame->pieces.assign(pieces.begin(), pieces.end());
  core_.load.serving.fetch_add(1, std::memory_order_relaxed);
  if (core_.stages(*frame))
    core_.into_slot(frame);
  else
    core_.lane->queue(frame);
  return {};
}

void ChunksIn::refuse_read(const wire::Header& header, tcpx_code code) {
  wire::Header failed;
  failed.type = wire::FrameType::kReadFailed;
  failed.status = static_cast<uint16_t>(code);
  failed.transfer = header.transfer;
  failed.chunk = header.chunk;
  small_.send(failed);
}

void ChunksIn::filled(TxFrame* frame, const std::string& failed) {
  if (core_.open() && failed.empty()) return core_.lane->queue(frame);
  const wire::Header header = frame->header;
  sent(frame);
  // Else the lane has ended.
  if (!failed.empty()) refuse_read(header, copy_failed(header, failed));
}

void ChunksIn::sent(TxFrame* frame) {
  core_.load.serving.fetch_sub(1, std::memory_order_relaxed);
  give_back(frame);
}

// ---- what goes wrong with memory -------------------------------------------------------------

tcpx_code ChunksIn::memory_gone(const wire::Header& header, const std::string& why) {
  if (unmapped_lines_.allow(now_ns(), core_.shared.log))
    core_.shared.log.warn("peer {} ({}): {} by the peer refused: {}", core_.peer.id(),
                          escaped(core_.peer.name()), asked_for(header.type), why);
  return TCPX_MEMORY_GONE;
}

tcpx_code ChunksIn::copy_failed(const wire::Header& header, const std::string& why) {
  if (copy_lines_.allow(now_ns(), core_.shared.log))
    core_.shared.log.error("peer {} ({}): {} by the peer failed: {}", core_.peer.id(),
                           escaped(core_.peer.name()), asked_for(header.type), why);
  return TCPX_COPY_FAILED;
}

// ---- fences ----------------------------------------------------------------------------------

size_t ChunksIn::revoke(uint64_t region) {
  size_t held = 0;
  core_.lane->each_receiving([&](RxChunk* chunk) {
    if (!lies_in(chunk->pieces, region)) return;
    if (chunk->state == RxChunk::State::kLanding) {
      chunk->drop(TCPX_STALE_REGION);
      core_.shared.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    }
    if (chunk->slot == nullptr && core_.lane->holds(chunk)) ++held;
  });
  core_.moves.each_placing([&](RxChunk* chunk) {
    if (!(chunk->state == RxChunk::State::kPlacing) || !lies_in(chunk->pieces, region)) return;
    if (!core_.moves.take_back(chunk, TCPX_STALE_REGION)) ++held;
  });
  frames_.each([&](TxFrame* frame) {
    const bool in_use = frame->header.type == wire::FrameType::kData;
    if (in_use && lies_in(frame->pieces, region) && !stop(frame)) ++held;
  });
  return held;
}

// Data of a region that the peer may not use any more. False: its memory is still read, by what
// cannot be called back.
bool ChunksIn::stop(TxFrame* frame) {
  if (frame->move != 0) return false;
  if (!core_.moves.unwait(frame) && !core_.lane->unqueue(frame))
    return core_.lane->abandon(frame, TCPX_STALE_REGION) || frame->slot != nullptr;
  const wire::Header header = frame->header;
  sent(frame);
  refuse_read(header, TCPX_STALE_REGION);
  core_.wake();
  return true;
}

// ---- the end ---------------------------------------------------------------------------------

void ChunksIn::drop_receiving() {
  core_.lane->each_receiving([this](RxChunk* chunk) {
    if (!core_.lane->holds(chunk)) give_back(chunk);
  });
}

void ChunksIn::give_up() {
  wants_slot_ = false;
  frames_.each([this](TxFrame* frame) { core_.moves.give_back(frame); });
  frames_.drain();
  chunks_.drain();
}

void ChunksIn::give_back(TxFrame* frame) {
  core_.moves.give_back(frame);
  frames_.give(frame);
}

void ChunksIn::give_back(RxChunk* chunk) {
  core_.moves.give_back(chunk);
  notices_.give_back(chunk);
  chunks_.give(chunk);
}

}  // namespace tcpx
