#include "engine/peer_lane.h"

#include <algorithm>

#include "base/caught.h"
#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

constexpr uint64_t kLongWrite = 64u << 10;

// Answers that wait to be sent at most. A peer that follows the protocol never has so many
// questions without an answer on a lane: its window, notifications by themselves and behind data,
// a ping and lanes that it lost. So two of them that ask each other as much as they can never
// stop reading each other.
size_t most_answers(uint32_t window) {
  return window + NoticeLedger::kMostOut + NoticesBehind::kMostOut + wire::kMaxLanes + 16;
}

// More than who fences at once has callers: then adding one needs no memory.
constexpr size_t kFencesAtOnce = 32;

ChunkWindow::Pace pace_of(const EngineOptions& options) {
  if (options.pacing) return ChunkWindow::Pace::kOneByOne;
  return options.adaptive_striping ? ChunkWindow::Pace::kAdaptive : ChunkWindow::Pace::kWhole;
}

// Of chunk_frames_.
bool is_chunk(wire::FrameType type) {
  return type == wire::FrameType::kWrite || type == wire::FrameType::kRead ||
         type == wire::FrameType::kData;
}

}  // namespace

PeerLane::PeerLane(Peer& peer, uint32_t index, std::shared_ptr<Loop> loop, const LaneTraits& traits)
    : peer_(peer),
      shared_(peer.shared()),
      index_(index),
      loop_owner_(std::move(loop)),
      traits_(traits),
      loop_(*loop_owner_),
      window_(peer.identity().window, pace_of(shared_.options), peer.identity().chunk_bytes),
      answers_(most_answers(peer.identity().window)),
      moves_(loop_.mover(), peer.identity().window, traits) {
  load_.may_hang = traits.may_hang;
  scratch_.reserve(wire::kMaxPieces);
  fences_.reserve(kFencesAtOnce);
  lost_writes_.reserve(peer.identity().window);
  lost_reads_.reserve(peer.identity().window);
  // What a lane needs at once in ordinary use; more is added when it is first needed, and kept.
  chunk_frames_.fill(2 * peer.identity().window);
  small_frames_.fill(2 * peer.identity().window);
  chunks_.fill(4);
  chunk_frames_.each([](TxFrame* frame) {
    frame->payload.reserve(4);
    frame->pieces.reserve(4);
  });
  chunks_.each([](RxChunk* chunk) {
    for (auto* list : {&chunk->destination, &chunk->landing}) list->reserve(4);
    chunk->pieces.reserve(4);
  });
}

PeerLane::~PeerLane() = default;

Status PeerLane::start(const LaneFactory& factory) {
  auto status = std::make_shared<Status>();
  bool ran = in_loop([this, status, factory, keep = peer_.shared_from_this()] {
    if (shut_) {
      *status = lane_error(TCPX_PEER_CLOSED, "the session has ended");
      return;
    }
    try {
      lane_ = factory(loop_, *this);
      rail_.store(std::hash<std::string>()(lane_->interface()), std::memory_order_relaxed);
      *status = lane_->start(std::shared_ptr<LoopSource>(keep, lane_.get()), peer_.id());
    } catch (...) {
      lane_.reset();  // with its socket: the other side must not wait for it
      *status = caught(TCPX_BLAST_LANE);
    }
    if (!status->ok()) return;
    // Only now: others wake an open lane by the place it has in its loop.
    started_.store(true, std::memory_order_release);
    load_.open.store(true, std::memory_order_release);
  });
  return ran ? *status : lane_error(TCPX_PATH_UNAVAILABLE, "the net plugin hangs in listen");
}

void PeerLane::shut(const Status& status) {
  shut_ = true;
  if (started()) lane_->close(status);
  if (ending_since_.load(std::memory_order_relaxed) != 0) return;  // ended() says so
  is_shut_.store(true, std::memory_order_release);
}

bool PeerLane::in_loop(std::function<void()> f, Nanos patience) {
  auto guarded = [this, keep = peer_.shared_from_this(), f = std::move(f)] {
    try {
      f();
    } catch (...) {
      if (started()) lane_->on_failure(caught(TCPX_BLAST_PEER));
      throw;
    }
  };
  return loop_.run_exclusive(guarded, patience);
}

// It may be asked twice (an end that had to be tried again), and whoever sees that it is shut lets
// the lanes go: the second one still has them.
Loop::Asked PeerLane::ask_shut(const Status& status, const LanesKept& kept) {
  return loop_.ask([this, status, kept, keep = peer_.shared_from_this()] {
    shut(status);
    keep->lane_shut();
  });
}

void PeerLane::ask_if_answered(const LanesKept& kept, std::function<void()> question) {
  if (owes_answer_.exchange(true)) return;
  try {
    (void)loop_.ask([this, kept, question = std::move(question), keep = peer_.shared_from_this()] {
      or_close(question);
      owes_answer_.store(false);
    });
  } catch (...) {
    owes_answer_.store(false);
    throw;
  }
}

// ---- what is to be sent -----------------------------------------------------------------------

void PeerLane::fill() {
  if (!open()) return;
  if (held_for_refusals()) end_refusal_hold();
  send_ping();
  wire::Header control;
  while (peer_.lost_lanes().next_frame(&control)) send_small(control);
  while (std::shared_ptr<Notice> notice = peer_.notices().next(*this))
    send_notice(std::move(notice));
  ChunkWork work;
  // What was dealt can go by no other lane: it does not wait for credit.
  while (window_.may_hold_more() && may_take_chunk() &&
         (take_dealt(&work) ||
          (lane_->payload_credit() > 0 && peer_.transfers().next_chunk(*this, &work)))) {
    bool shared = work.shared;
    bool long_write = send_chunk(std::move(work)) >= kLongWrite;
    // Sending it takes a while. The other lanes want theirs first; the lane asks again behind it.
    if (long_write && shared) break;
  }
}

// Because somebody asked for a ping, or because the peer has to know of our epoch. One at a time: a
// peer that does not read must not find a heap of them.
void PeerLane::send_ping() {
  uint64_t epoch = shared_.epoch.load(), asked = pings_asked_.load();
  bool news = epoch != epoch_told_ && epoch > peer_.epochs().answered();
  if (ping_unanswered_ || (!news && asked == ping_sent_)) return;
  ping_unanswered_ = true;
  ping_sent_ = asked;
  epoch_told_ = epoch;
  wire::Header ping;
  ping.type = wire::FrameType::kPing;
  ping.aux = ping.transfer = epoch;
  send_small(ping);
}

void PeerLane::deal(ChunkWork work) {
  dealt_work_ = std::move(work);
  load_.dealt.store(true, std::memory_order_release);
}

bool PeerLane::take_dealt(ChunkWork* out) {
  if (!load_.dealt.load(std::memory_order_acquire)) return false;
  *out = std::move(dealt_work_);
  load_.dealt.store(false, std::memory_order_release);
  return true;
}

// ---- frames --------------------------------------------------------------------------------

Status PeerLane::on_frame(const wire::Header& header, std::span<const wire::Piece> pieces) {
  switch (header.type) {
    case wire::FrameType::kRead: return serve_read(header, pieces);
    case wire::FrameType::kAck:
    case wire::FrameType::kReadFailed: return answer_received(header);
    case wire::FrameType::kNotifyAck:
      peer_.notices().answered(header.transfer, header.verdict());
      return {};
    case wire::FrameType::kLaneDown:
    case wire::FrameType::kLaneDownAck: return peer_.lost_lanes().hear(header);
    case wire::FrameType::kNotifyBehindAck: return notice_behind_answered(header);
    case wire::FrameType::kPing: {
      peer_.hear_epoch(header.transfer);
      wire::Header pong;
      pong.type = wire::FrameType::kPong;
      pong.aux = header.aux;
      pong.transfer = payload_received_;
      send_small(pong);
      return {};
    }
    case wire::FrameType::kPong:
      peer_received_.store(header.transfer, std::memory_order_relaxed);
      if (header.aux == 0) {  // answers no ping
        lane_->peer_is_full();
        return {};
      }
      peer_.epoch_was_heard(header.aux);
      ping_unanswered_ = false;
      return {};
    case wire::FrameType::kBye: peer_.lane_said_bye(*this); return {};
    default: return peer_error(TCPX_PROTOCOL_ERROR, "frame type without meaning here");
  }
}

void PeerLane::on_sent(TxFrame* frame) {
  if (frame->header.is_answer() && answers_.sent()) lane_->resume_reading(ReadHold::kUnreadAnswers);
  if (frame->header.type == wire::FrameType::kData)
    load_.serving.fetch_sub(1, std::memory_order_relaxed);
  if (frame->header.is_notice()) notice_frames_.erase(frame);
  if (frame->header.type == wire::FrameType::kWrite ||
      frame->header.type == wire::FrameType::kRead) {
    ChunkOut* entry = window_.find(frame->header.transfer, frame->header.chunk);
    if (entry != nullptr && entry->frame == frame) chunk_sent(*entry);
  }
  drop_frame(frame);
}

void PeerLane::on_settled(const PathRefusal& refusal) {
  rail_.store(std::hash<std::string>()(lane_->interface()), std::memory_order_relaxed);
  peer_.lane_settled(*this, refusal);
}

void PeerLane::send_bye() {
  if (!open() || bye_sent_) return;
  bye_sent_ = true;
  wire::Header bye;
  bye.type = wire::FrameType::kBye;
  send_small(bye);
  lane_->finish();
}

// Nothing but a head.
void PeerLane::send_small(wire::Header header) {
  if (!open() || lane_->silent()) return;
  TxFrame* frame = small_frames_.take();
  frame->header = header;
  if (header.is_answer() && answers_.queued(now_ns()))
    lane_->hold_reading(ReadHold::kUnreadAnswers);
  lane_->queue(frame);
}

// ---- reports -----------------------------------------------------------------------------

std::string PeerLane::describe_stall(Nanos now, Nanos age) const {
  const ChunkOut* oldest = window_.oldest();
  if (oldest == nullptr || now - oldest->since < age) return {};
  uint64_t offset = 0;
  if (oldest->transfer)
    for (uint32_t i = 0; i < oldest->chunk; ++i) offset += oldest->transfer->plan.chunks[i].bytes;
  return strf(
      "lane {} to {}: transfer {} chunk {} at offset {} ({} bytes, {}) has waited "
      "{} ms; {} chunks outstanding, {} bytes sent, peer says it has received {} "
      "payload bytes",
      index_, lane_->remote(), oldest->transfer_id, oldest->chunk, offset, oldest->bytes,
      oldest->frame ? "not yet out" : "awaiting the answer", (now - oldest->since) / kMilli,
      window_.used(), lane_->counters().bytes_out.load(), peer_received());
}

// ---- pools ---------------------------------------------------------------------------------

void PeerLane::drop_frame(TxFrame* frame) {
  moves_.give_back(frame);
  (is_chunk(frame->header.type) ? chunk_frames_ : small_frames_).give(frame);
}

void PeerLane::drop_chunk(RxChunk* chunk) {
  moves_.give_back(chunk);
  if (chunk->reserved) peer_.notices_in().does_not_come(chunk->header.payload_bytes);
  chunks_.give(chunk);
}

}  // namespace tcpx
