#include "engine/peer_lane.h"

#include "base/caught.h"
#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

std::string gone_text(const void* at, const PartRegions& regions) {
  const RegionExtent* around = regions.around(at);
  const RegionExtent region = around == nullptr ? RegionExtent{} : *around;
  return strf(
      "memory at {} is not mapped any more, but registered ({} bytes from {}); deregister a "
      "region before its memory is freed",
      at, region.length, static_cast<const void*>(region.base));
}

}  // namespace

PeerLane::PeerLane(Peer& peer, uint32_t index, std::shared_ptr<Loop> loop, const LaneTraits& traits)
    : LaneLife(peer, index, std::move(loop), traits) {}

PeerLane::~PeerLane() = default;

// ---- frames ----------------------------------------------------------------------------------

void PeerLane::fill() {
  core_.assert_inside();
  if (!open()) return;
  refusals_.go_on();
  pings_.send();
  // Asked several times for each chunk, and mostly there is nothing.
  if (core_.peer.lost_lanes().may_have_news()) send_news();
  if (core_.peer.notices().may_have_more()) notices_.fill();
  if (out_.may_have_more()) out_.fill();
}

void PeerLane::send_news() {
  wire::Header news;
  while (core_.peer.lost_lanes().next_frame(&news)) small_.send(news);
}

Status PeerLane::on_frame(const wire::Header& header, std::span<const wire::Piece> pieces) {
  core_.assert_inside();
  switch (header.type) {
    case wire::FrameType::kRead: return in_.serve_read(header, pieces);
    case wire::FrameType::kAck:
    case wire::FrameType::kReadFailed: return out_.answered(header);
    case wire::FrameType::kNotifyAck:
      core_.peer.notices().answered(header.transfer, header.verdict());
      return {};
    case wire::FrameType::kNotifyBehindAck: return notices_.behind_answered(header);
    case wire::FrameType::kLaneDown:
    case wire::FrameType::kLaneDownAck: return core_.peer.lost_lanes().hear(header);
    case wire::FrameType::kPing: pings_.hear_ping(header); return {};
    case wire::FrameType::kPong: pings_.hear_pong(header); return {};
    case wire::FrameType::kBye: core_.peer.ending().lane_said_bye(*this); return {};
    default: return peer_error(TCPX_PROTOCOL_ERROR, "frame type without meaning here");
  }
}

void PeerLane::on_sent(TxFrame* frame) {
  core_.assert_inside();
  switch (frame->header.type) {
    case wire::FrameType::kWrite:
    case wire::FrameType::kRead: return out_.sent(frame);
    case wire::FrameType::kData: return in_.sent(frame);
    case wire::FrameType::kNotify:
    case wire::FrameType::kNotifyBehind: return notices_.sent(frame);
    default: return small_.sent(frame);
  }
}

Status PeerLane::on_head(const wire::Header& header, std::span<const wire::Piece> pieces,
                         RxChunk** chunk) {
  core_.assert_inside();
  return in_.head(header, pieces, chunk);
}

// Only what notifications land in grows.
void PeerLane::extend_landing(RxChunk* chunk) {
  core_.assert_inside();
  notices_.extend_landing(chunk);
}

Status PeerLane::on_payload(RxChunk* chunk, const wire::Trailer& trailer) {
  core_.assert_inside();
  return in_.arrived(chunk, trailer);
}

bool PeerLane::awaits_answer() const {
  core_.assert_inside();
  return out_.awaits_answer() || notices_.awaits_answer();
}

void PeerLane::on_settled(const PathRefusal& refusal) {
  core_.assert_inside();
  interface_is_known();
  core_.peer.lane_settled(*this, refusal);
}

void PeerLane::send_bye() {
  core_.assert_inside();
  if (!open() || core_.said_bye) return;
  core_.said_bye = true;
  wire::Header bye;
  bye.type = wire::FrameType::kBye;
  small_.send(bye);
  core_.lane->finish();
}

// ---- memory that fails -----------------------------------------------------------------------

tcpx_code PeerLane::on_unmapped(TxFrame* frame, const void* at) {
  core_.assert_inside();
  const std::string why = gone_text(at, frame->regions);
  return frame->header.type == wire::FrameType::kWrite
             ? out_.fail(frame->header, TCPX_MEMORY_GONE, why)
             : in_.memory_gone(frame->header, why);
}

tcpx_code PeerLane::on_unmapped(RxChunk* chunk, const void* at) {
  core_.assert_inside();
  const std::string why = gone_text(at, chunk->regions);
  return chunk->header.type == wire::FrameType::kData
             ? out_.fail(chunk->header, TCPX_MEMORY_GONE, why)
             : in_.memory_gone(chunk->header, why);
}

tcpx_code PeerLane::on_move_failed(RxChunk* chunk, const std::string& why) {
  core_.assert_inside();
  const std::string text = why.empty() ? "the copy failed" : why;
  return chunk->header.type == wire::FrameType::kData
             ? out_.fail(chunk->header, TCPX_COPY_FAILED, text)
             : in_.copy_failed(chunk->header, text);
}

// ---- moves, slots and fences -----------------------------------------------------------------

size_t PeerLane::stop(const TransferState& transfer, uint64_t post) {
  core_.assert_inside();
  advance_moves();
  return out_.stop(transfer, post);
}

// Counted at one moment: a move that ended between two counts looked like memory that is held by
// something else, for which the lane is closed.
size_t PeerLane::let_go_of(uint64_t region) {
  core_.assert_inside();
  advance_moves();
  return in_.revoke(region) + out_.stop_users_of(region);
}

size_t PeerLane::revoke(uint64_t region) {
  core_.assert_inside();
  advance_moves();
  return in_.revoke(region);
}

Work PeerLane::on_idle() {
  core_.assert_inside();
  return nothing_moves() ? Work::kNone : advance_idle();
}

Work PeerLane::advance_idle() {
  advance_moves();
  fences_.look();
  if (!open()) return Work::kNone;
  in_.look_for_slot();
  if (in_.wants_slot() || core_.lane->moving() > 0) pings_.keep_alive();
  out_.look_for_slot();
  if (core_.moves.run_by_hand()) return Work::kMore;
  return nothing_moves() ? Work::kNone : Work::kWaiting;
}

// Of a lane that is down none is begun any more: it would outlive the lane.
void PeerLane::advance_moves() {
  while (TxFrame* frame = open() ? core_.moves.next_with_slot() : nullptr)
    if (frame->header.type == wire::FrameType::kWrite) out_.has_slot(frame->header);
  MoveEnd end;
  while (TxFrame* frame = core_.moves.next_filled(&end)) {
    if (frame->header.type == wire::FrameType::kWrite)
      out_.filled(frame, end);
    else
      in_.filled(frame, end.why);
    end = {};
  }
  while (RxChunk* chunk = core_.moves.next_placed(&end)) {
    if (end.failed()) chunk->refusal = on_move_failed(chunk, end.why);
    if (chunk->header.type == wire::FrameType::kData) out_.data_moved(chunk->header, end);
    end = {};
    in_.placed(chunk);
  }
}

// ---- the end ---------------------------------------------------------------------------------

// Allocates nothing itself. What others cannot do for want of memory ends the peer, which needs
// none of it.
void PeerLane::on_down(const Status& status) noexcept {
  core_.assert_inside();
  core_.load.open.store(false, std::memory_order_release);
  quietly([&] { in_.drop_receiving(); });
  core_.moves.take_back_writes(TCPX_PEER_DISCONNECTED);  // the peer sends them again
  if (quietly([&] { finish_moves(); }) && core_.moves_running() == 0) return ended(status);
  // Nothing arrives or leaves through this lane any more, but what has arrived may still be moved
  // into place: a chunk must not be asked for again while its first copy can still land.
  ends_later();
  auto finish_later = [&] {
    core_.loop.finish_later(
        [this, status, keep = core_.peer.shared_from_this(), kept = core_.peer.lanes().kept()] {
          if (!quietly([&] { finish_moves(); }) || core_.moves_running() > 0) return false;
          ended(status);
          return true;
        });
  };
  // Without memory for that it is waited for here.
  while (!quietly(finish_later)) {
    quietly([&] { finish_moves(); });
    if (core_.moves_running() == 0) return ended(status);
  }
}

// Those by hand come to their end here and now.
void PeerLane::finish_moves() {
  do advance_moves();
  while (core_.moves.run_by_hand());
  core_.lane->look_at_moves();
}

// Its last move is over. A peer that has ended is remembered for a while, and its lanes with it:
// they keep nothing.
void PeerLane::ended(const Status& status) noexcept {
  quietly([&] { advance_moves(); });  // those that waited behind others
  core_.moves.wait_no_more();
  UnconfirmedWrites unconfirmed;
  std::vector<ChunkWork> reads;
  out_.give_up(&unconfirmed.chunks, &reads);
  notices_.give_up(&unconfirmed);
  in_.give_up();
  small_.drain();
  core_.peer.ending().or_fail([&] {
    core_.peer.lost_lanes().lost(*this, status, std::move(unconfirmed), std::move(reads));
  });
  fences_.let_go_all();
  has_ended();
}

// ---- reports ---------------------------------------------------------------------------------

std::string PeerLane::describe_stall(Nanos now, Nanos age) const {
  core_.assert_inside();
  const ChunkOut* oldest = out_.stalled(now, age);
  if (oldest == nullptr) return {};
  uint64_t offset = 0;
  if (oldest->transfer)
    for (uint32_t i = 0; i < oldest->chunk; ++i) offset += oldest->transfer->plan.chunks[i].bytes;
  return strf(
      "lane {} to {}: transfer {} chunk {} at offset {} ({} bytes, {}) has waited "
      "{} ms; {} chunks outstanding, {} bytes sent, peer says it has received {} "
      "payload bytes",
      index(), core_.lane->remote(), oldest->transfer_id, oldest->chunk, offset, oldest->bytes,
      oldest->frame ? "not yet out" : "awaiting the answer", (now - oldest->since) / kMilli,
      in_flight(), core_.lane->counters().bytes_out.load(), pings_.peer_received());
}

}  // namespace tcpx
