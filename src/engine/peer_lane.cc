#include "engine/peer_lane.h"

#include <algorithm>

#include "base/caught.h"
#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

// A lane holds at most this much time's worth of chunks, at the rate it has shown: what a slow
// lane holds at the end of a transfer is what everybody waits for.
constexpr Nanos kHoldTime = 20 * kMilli;
constexpr uint32_t kMinWindow = 2;
constexpr uint32_t kFirstWindow = 4;  // before a rate is known
constexpr Nanos kRateSpan = kMilli;
constexpr uint64_t kLongWrite = 64u << 10;
// Of chunk_frames_.
bool is_chunk(wire::FrameType type) {
  return type == wire::FrameType::kWrite || type == wire::FrameType::kRead ||
         type == wire::FrameType::kData;
}

}  // namespace

PeerLane::PeerLane(Peer& peer, uint32_t index, std::shared_ptr<Loop> loop, bool own_loop)
    : peer_(peer),
      shared_(peer.shared()),
      index_(index),
      loop_owner_(std::move(loop)),
      own_loop_(own_loop),
      loop_(*loop_owner_),
      outstanding_(peer.window()),
      moves_(loop_.mover(), peer.window(), own_loop) {
  scratch_.reserve(wire::kMaxPieces);
  behind_.reserve(kMostBehind);
  lost_writes_.reserve(peer.window());
  lost_reads_.reserve(peer.window());
  // What a lane needs at once in ordinary use; more is added when it is first needed, and kept.
  chunk_frames_.fill(2 * peer.window());
  small_frames_.fill(2 * peer.window());
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
    open_.store(true, std::memory_order_release);
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

// ---- our chunks ----------------------------------------------------------------------------

bool PeerLane::may_hold_more() const {
  if (used_ >= outstanding_.size()) return false;
  if (shared_.options.pacing) return used_ == 0;
  if (!shared_.options.adaptive_striping || used_ < kMinWindow) return true;
  if (rate() == 0) return used_ < kFirstWindow;
  return static_cast<double>(held_bytes_) < rate() * kHoldTime;
}

// The rate at which answers come back while the lane is busy, over a span of time: answers come in
// bursts, and taken one by one they showed ten times the rate of a WRITE.
void PeerLane::learn_rate(uint64_t bytes) {
  answered_bytes_ += bytes;
  Nanos now = now_ns(), span = now - measured_since_;
  bool all_of_it = used_ == 0 && measured_since_ == busy_since_ && span > 0;
  if (span < kRateSpan && !all_of_it) return;
  if (answered_bytes_ < peer_.chunk_bytes() / 4) return;  // too small to tell
  double sample = static_cast<double>(answered_bytes_) / static_cast<double>(span);
  double before = rate();
  rate_.store(before == 0 ? sample : before + (sample - before) / 8, std::memory_order_relaxed);
  measured_since_ = now;
  answered_bytes_ = 0;
}

void PeerLane::fill() {
  if (!open()) return;
  if (held_for_refusals()) end_refusal_hold();
  send_ping();
  wire::Header control;
  while (peer_.next_control(&control)) send_small(control);
  while (std::shared_ptr<Notice> notice = peer_.next_notice(*this)) send_notice(std::move(notice));
  ChunkWork work;
  // What was dealt can go by no other lane: it does not wait for credit.
  while (may_hold_more() && may_take_chunk() &&
         (take_dealt(&work) || (lane_->payload_credit() > 0 && peer_.next_chunk(*this, &work)))) {
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
  bool news = epoch != epoch_told_ && epoch > peer_.epoch_answered();
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
  dealt_.store(true, std::memory_order_release);
}

bool PeerLane::take_dealt(ChunkWork* out) {
  if (!dealt_.load(std::memory_order_acquire)) return false;
  *out = std::move(dealt_work_);
  dealt_.store(false, std::memory_order_release);
  return true;
}

// Returns how much payload the stream takes with it.
uint64_t PeerLane::send_chunk(ChunkWork work) {
  TransferState& transfer = *work.transfer;
  const Chunk& chunk = transfer.plan.chunks[work.chunk];
  auto entry = std::find_if(outstanding_.begin(), outstanding_.end(),
                            [](const Outstanding& e) { return !e.used; });
  TxFrame* frame = chunk_frames_.take();
  bool is_read = transfer.plan.op == TCPX_READ;
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
  if (!is_read) sent_.add(work.transfer_id);

  entry->used = true;
  entry->transfer = std::move(work.transfer);
  entry->transfer_id = work.transfer_id;
  entry->chunk = work.chunk;
  entry->bytes = chunk.bytes;
  entry->since = now_ns();
  entry->frame = frame;
  entry->landing = nullptr;
  entry->is_read = is_read;
  entry->answered = false;
  held_bytes_ += chunk.bytes;
  if (used_++ == 0) {
    busy_since_ = measured_since_ = entry->since;
    answered_bytes_ = 0;
  }
  in_flight_.store(used_, std::memory_order_relaxed);
  shared_.counters.chunks_live.fetch_add(1, std::memory_order_relaxed);
  if (!is_read) shared_.counters.chunks_sent.fetch_add(1, std::memory_order_relaxed);
  queue_payload(frame);
  if (work.notice != nullptr) send_notice_behind(std::move(work.notice), *entry);
  return frame->has_tail() ? chunk.bytes : 0;
}

PeerLane::Outstanding* PeerLane::find(uint64_t transfer_id, uint32_t chunk) {
  for (Outstanding& entry : outstanding_)
    if (entry.used && entry.transfer_id == transfer_id && entry.chunk == chunk) return &entry;
  return nullptr;
}

void PeerLane::settle(Outstanding& entry, tcpx_code code) {
  ChunkWork work{std::move(entry.transfer), entry.transfer_id, entry.chunk};
  work.copied = entry.copied;
  uint64_t bytes = entry.bytes;
  entry = {};
  --used_;
  held_bytes_ -= bytes;
  if (code == TCPX_OK) learn_rate(bytes);
  in_flight_.store(used_, std::memory_order_relaxed);
  shared_.counters.chunks_live.fetch_sub(1, std::memory_order_relaxed);
  if (work.transfer) peer_.settle(work, index_, code, "the peer");
}

Status PeerLane::answer_received(const wire::Header& header) {
  Outstanding* entry = find(header.transfer, header.chunk);
  bool read_answer = header.type == wire::FrameType::kReadFailed;
  // Beside the stream a payload may be there before our end of the path knows that it is out.
  bool overtook = entry != nullptr && entry->frame != nullptr && entry->frame->beside &&
                  entry->frame->started && !entry->answered;
  if (entry == nullptr || entry->is_read != read_answer || (entry->frame != nullptr && !overtook) ||
      (read_answer && header.status == TCPX_OK))
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("answer for chunk {} of transfer {}, which is not outstanding",
                           header.chunk, header.transfer));
  if (overtook) {
    entry->answered = true;
    entry->answer = static_cast<tcpx_code>(header.status);
    return {};
  }
  settle(*entry, static_cast<tcpx_code>(header.status));
  return {};
}

// Where the data of one of our READ chunks goes.
Status PeerLane::data_head(const wire::Header& header, RxChunk* chunk) {
  Outstanding* entry = find(header.transfer, header.chunk);
  if (entry == nullptr || !entry->is_read || entry->landing != nullptr || entry->frame != nullptr ||
      entry->bytes != header.payload_bytes)
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("data for chunk {} of transfer {}, which was not asked for",
                           header.chunk, header.transfer));
  entry->landing = chunk;
  if (entry->transfer == nullptr) {  // cancelled meanwhile
    shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    chunk->discard = true;
    return {};
  }
  const Plan& plan = entry->transfer->plan;
  const Chunk& part = plan.chunks[entry->chunk];
  plan.local_memory(part, &chunk->destination, &chunk->regions);
  chunk->place = part.local;
  return {};
}

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
  chunk->refusal = resolve(chunk->header, chunk->pieces, TCPX_REMOTE_WRITE,
                           {&chunk->destination, &chunk->place, &chunk->regions});
  chunk->discard = chunk->refusal != TCPX_OK;
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
  if (serving() >= outstanding_.size() + lane_->sends_done_late())
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
  serving_.fetch_add(1, std::memory_order_relaxed);
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
  if (is_write && writes_in_ >= outstanding_.size())
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("more than {} writes outstanding on one lane", writes_in_));
  RxChunk* chunk = chunks_.take();
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
  wants_slot_ = !header.is_notice() && !chunk->discard && !land(chunk);
  if (wants_slot_) {  // it comes again: resume_reading()
    if (Outstanding* entry = find(header.transfer, header.chunk); !is_write && entry != nullptr)
      entry->landing = nullptr;
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
    notice_received(chunk);
    return {};
  }
  if (trailer.status != TCPX_OK && chunk->refusal == TCPX_OK)
    chunk->refusal = static_cast<tcpx_code>(trailer.status);
  if (moves_.place(chunk))
    placed(chunk);
  else
    look_at_moves_soon();
  return {};
}

// The chunk's bytes are in place (or it was refused): tell who waits.
void PeerLane::placed(RxChunk* chunk) {
  tcpx_code code = chunk->refusal;
  if (chunk->header.type == wire::FrameType::kWrite) {
    if (code == TCPX_OK)
      placed_.add(chunk->header.transfer);
    else
      placed_ = {};
    write_done(chunk, code);
  } else if (Outstanding* entry = find(chunk->header.transfer, chunk->header.chunk)) {
    entry->landing = nullptr;
    entry->copied = chunk->copied + (chunk->slot == nullptr ? 0 : chunk->header.payload_bytes);
    settle(*entry, code);
  }
  if (code == TCPX_OK) shared_.counters.chunks_received.fetch_add(1, std::memory_order_relaxed);
  drop_chunk(chunk);
}

// ---- frames --------------------------------------------------------------------------------

Status PeerLane::on_frame(const wire::Header& header, std::span<const wire::Piece> pieces) {
  switch (header.type) {
    case wire::FrameType::kRead: return serve_read(header, pieces);
    case wire::FrameType::kAck:
    case wire::FrameType::kReadFailed: return answer_received(header);
    case wire::FrameType::kNotifyAck:
      peer_.notice_confirmed(header.transfer, static_cast<tcpx_code>(header.status));
      return {};
    case wire::FrameType::kLaneDown:
    case wire::FrameType::kLaneDownAck: return peer_.hear_about_lane(header);
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
    case wire::FrameType::kBye: peer_.peer_said_bye(*this); return {};
    default: return peer_error(TCPX_PROTOCOL_ERROR, "frame type without meaning here");
  }
}

void PeerLane::on_sent(TxFrame* frame) {
  if (frame->header.is_answer()) answer_sent();
  if (frame->header.type == wire::FrameType::kData)
    serving_.fetch_sub(1, std::memory_order_relaxed);
  if (frame->header.is_notice()) notice_frames_.erase(frame);
  if (frame->header.type == wire::FrameType::kWrite ||
      frame->header.type == wire::FrameType::kRead) {
    Outstanding* entry = find(frame->header.transfer, frame->header.chunk);
    if (entry != nullptr && entry->frame == frame) {
      entry->frame = nullptr;
      entry->copied = frame->copied;
      if (entry->answered) settle(*entry, entry->answer);
    }
  }
  drop_frame(frame);
}

void PeerLane::on_settled(const Status& status) {
  rail_.store(std::hash<std::string>()(lane_->interface()), std::memory_order_relaxed);
  peer_.lane_settled(*this, status);
}

void PeerLane::send_bye() {
  if (!open() || bye_sent_) return;
  bye_sent_ = true;
  wire::Header bye;
  bye.type = wire::FrameType::kBye;
  send_small(bye);
  lane_->finish();
}

// ---- reports -----------------------------------------------------------------------------

std::string PeerLane::describe_stall(Nanos now, Nanos age) const {
  const Outstanding* oldest = nullptr;
  for (const Outstanding& entry : outstanding_)
    if (entry.used && (oldest == nullptr || entry.since < oldest->since)) oldest = &entry;
  if (oldest == nullptr || now - oldest->since < age) return {};
  uint64_t offset = 0;
  if (oldest->transfer)
    for (uint32_t i = 0; i < oldest->chunk; ++i) offset += oldest->transfer->plan.chunks[i].bytes;
  return strf(
      "lane {} to {}: transfer {} chunk {} at offset {} ({} bytes, {}) has waited "
      "{} ms; {} chunks outstanding, {} bytes sent, peer says it has received {} "
      "payload bytes",
      index_, lane_->remote(), oldest->transfer_id, oldest->chunk, offset, oldest->bytes,
      oldest->frame ? "not yet out" : "awaiting the answer", (now - oldest->since) / kMilli, used_,
      lane_->counters().bytes_out.load(), peer_received());
}

// ---- pools ---------------------------------------------------------------------------------

void PeerLane::drop_frame(TxFrame* frame) {
  moves_.give_back(frame);
  (is_chunk(frame->header.type) ? chunk_frames_ : small_frames_).give(frame);
}

void PeerLane::drop_chunk(RxChunk* chunk) {
  moves_.give_back(chunk);
  if (chunk->reserved) peer_.notice_does_not_come(chunk->header.payload_bytes);
  chunks_.give(chunk);
}

}  // namespace tcpx
