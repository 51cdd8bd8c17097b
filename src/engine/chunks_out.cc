#include "engine/chunks_out.h"

#include <utility>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

constexpr uint64_t kLongWrite = 64u << 10;

ChunkWindow::Pace pace_of(const EngineOptions& options) {
  if (options.pacing) return ChunkWindow::Pace::kOneByOne;
  return options.adaptive_striping ? ChunkWindow::Pace::kAdaptive : ChunkWindow::Pace::kWhole;
}

}  // namespace

// What a lane needs at once in ordinary use; more is added when it is first needed, and kept.
ChunksOut::ChunksOut(LaneCore& core, LaneNotices& notices)
    : core_(core),
      notices_(notices),
      window_(core.window, pace_of(core.shared.options), core.peer.identity().chunk_bytes) {
  pieces_.reserve(wire::kMaxPieces);
  lost_writes_.reserve(core.window);
  lost_reads_.reserve(core.window);
  frames_.fill(core.window);
  frames_.each([](TxFrame* frame) { frame->payload.reserve(4); });
}

// ---- handed to the lane ----------------------------------------------------------------------

void ChunksOut::deal(ChunkWork work) {
  dealt_ = std::move(work);
  core_.load.dealt.store(true, std::memory_order_release);
}

bool ChunksOut::take_dealt(ChunkWork* out, const NoMoreOf& no_more) {
  core_.assert_inside();
  if (!core_.load.dealt.load(std::memory_order_acquire)) return false;
  if (!no_more.none() && dealt_.transfer->plan.is_of(dealt_.chunk, no_more)) {
    if (dealt_.transfer->plan.lacks_slot(dealt_.chunk, no_more.slots))
      dealt_lacks_slot();
    else
      dealt_lacks_none();
    return false;
  }
  dealt_lacks_none();
  *out = std::move(dealt_);
  core_.load.dealt.store(false, std::memory_order_release);
  return true;
}

bool ChunksOut::may_have_more() const {
  return core_.load.dealt.load(std::memory_order_acquire) || wants_slot_ ||
         core_.peer.transfers().may_have_chunks();
}

void ChunksOut::fill() {
  ChunkWork work;
  while (window_.has_place() && take(&work)) {
    bool shared = work.shared;
    bool long_write = send(std::move(work)) >= kLongWrite;
    // Sending it takes a while. The other lanes want theirs first; the lane asks again behind it.
    if (long_write && shared) break;
  }
  if (wanted_ != 0) want_slots_no_more();
}

// A chunk has its slot before it leaves its queue: there other lanes can still have it. Those that
// need none, or are not of a GPU that has its share of the window, pass it. What was dealt can go
// by no other lane: it does not wait for credit.
bool ChunksOut::take(ChunkWork* out) {
  NoMoreOf no_more = window_.no_more();
  no_more.slots = core_.moves.starved();
  wants_slot_ = no_more.slots != 0;
  if (wants_slot_) core_.make_waiting();  // the slots may be other lanes'
  if (wanted_ != 0 && wanted_ != no_more.slots) want_slots_no_more();
  if (take_dealt(out, no_more)) return true;
  Transfers& transfers = core_.peer.transfers();
  if (no_more.host && !transfers.may_have_gpu_chunks()) return false;
  // Who is short of something, or waits for what it has, looks often: not at the same queue again.
  const Refused now{Scheduler::WhyNone::kOther, no_more, transfers.chunk_news(), window_.used()};
  if (refused_.holds(now)) return false;
  if (core_.lane->payload_credit() == 0) return false;
  wanted_ = no_more.slots;
  refused_ = now;
  return transfers.next_chunk(core_.index, no_more, notices_, out, &refused_.why);
}

// Returns how much payload the stream takes with it.
uint64_t ChunksOut::send(ChunkWork work) {
  TxFrame* frame = frames_.take();
  build(work, frame);
  const bool is_read = frame->header.type == wire::FrameType::kRead;
  const uint64_t bytes = frame->header.payload_bytes;
  const bool staged = core_.stages(*frame);
  const auto state = staged ? ChunkOut::State::kFilling : ChunkOut::State::kQueued;
  std::shared_ptr<Notice> notice = std::move(work.notice);
  ChunkOut& entry = window_.take(std::move(work), bytes, is_read, state, now_ns());
  entry.frame = frame;
  core_.load.in_flight.store(window_.used(), std::memory_order_relaxed);
  EngineCounters& counters = core_.shared.counters;
  counters.chunks_live.fetch_add(1, std::memory_order_relaxed);
  if (!is_read) counters.chunks_sent.fetch_add(1, std::memory_order_relaxed);
  if (!is_read) notices_.write_sent(entry.transfer_id);
  if (!core_.moves.serves(frame->place)) return cannot_reach(entry);
  if (staged)
    core_.into_slot(frame);
  else
    core_.lane->queue(frame);
  if (staged && frame->slot == nullptr) lacks_slot(entry);
  if (notice != nullptr) notices_.send_behind(std::move(notice), entry.transfer, entry.transfer_id);
  return frame->has_tail() && !staged ? bytes : 0;  // into a slot it goes by itself
}

// A net plugin that carries host memory has no slots for a GPU's.
uint64_t ChunksOut::cannot_reach(ChunkOut& entry) {
  TxFrame* frame = std::exchange(entry.frame, nullptr);
  const wire::Header header = frame->header;
  const std::string why = strf(
      "path {} of this peer does not reach memory of {}; set "
      "allow_path=tcp, or use host memory",
      core_.lane->path(), frame->place.text());
  give_back(frame);
  settle(entry, fail(header, TCPX_PATH_UNAVAILABLE, why));
  return 0;
}

// Header and piece table, around the user's memory.
void ChunksOut::build(const ChunkWork& work, TxFrame* frame) {
  const Plan& plan = work.transfer->plan;
  const Chunk& chunk = plan.chunks[work.chunk];
  wire::Header& header = frame->header;
  header.type = plan.op == TCPX_READ ? wire::FrameType::kRead : wire::FrameType::kWrite;
  header.transfer = work.transfer_id;
  header.chunk = work.chunk;
  header.piece_count = chunk.pieces;
  header.payload_bytes = chunk.bytes;
  header.aux = work.epoch;
  pieces_.clear();
  plan.remote_pieces(chunk, &pieces_);
  if (chunk.pieces == 1) {
    header.piece = pieces_[0];
  } else {
    frame->table.resize(chunk.pieces * wire::kPieceBytes);
    wire::encode_pieces(pieces_, frame->table.data());
  }
  if (plan.op == TCPX_WRITE) plan.local_memory(chunk, &frame->payload, &frame->regions);
  frame->place = chunk.local;
}

// ---- sent, and answered ----------------------------------------------------------------------

void ChunksOut::filled(TxFrame* frame, const MoveEnd& end) {
  ChunkOut* entry = window_.find(frame->header.transfer, frame->header.chunk);
  if (entry != nullptr) moved(*entry, end);
  if (core_.open() && !end.failed()) {
    if (entry != nullptr) entry->state.step(ChunkOut::State::kQueued);
    return core_.lane->queue(frame);
  }
  const wire::Header header = frame->header;
  if (entry != nullptr) entry->frame = nullptr;
  give_back(frame);
  if (!end.failed() || entry == nullptr) return;  // the lane has ended: its chunks go elsewhere
  const tcpx_code code = fail(header, TCPX_COPY_FAILED, end.why);
  notices_.write_failed();
  settle(*entry, code);
}

// All of it has left.
void ChunksOut::sent(TxFrame* frame) {
  ChunkOut* entry = window_.find(frame->header.transfer, frame->header.chunk);
  if (entry != nullptr && entry->frame == frame) {
    entry->copied = frame->copied;
    entry->frame = nullptr;
    if (entry->state == ChunkOut::State::kAnswered)
      settle(*entry, entry->answer);
    else
      entry->state.step(ChunkOut::State::kOut);
  }
  give_back(frame);
}

// Only to what is out. Beside the stream a payload may be there before our end of the path knows
// that it is.
Status ChunksOut::answered(const wire::Header& header) {
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

void ChunksOut::settle(ChunkOut& entry, tcpx_code code) {
  lacks_none(entry);
  ChunkWork work = window_.settle(entry, code == TCPX_OK, now_ns());
  core_.load.in_flight.store(window_.used(), std::memory_order_relaxed);
  core_.shared.counters.chunks_live.fetch_sub(1, std::memory_order_relaxed);
  if (work.transfer) core_.peer.transfers().settle(work, code, "the peer");
}

tcpx_code ChunksOut::fail(const wire::Header& header, tcpx_code code, const std::string& why) {
  ChunkOut* entry = window_.find(header.transfer, header.chunk);
  if (entry != nullptr && entry->transfer != nullptr)
    core_.peer.transfers().fail(entry->transfer, entry->transfer_id, transfer_error(code, why));
  return code;
}

// ---- the data of a READ ----------------------------------------------------------------------

// Where it goes.
Status ChunksOut::data_head(const wire::Header& header, RxChunk* chunk) {
  ChunkOut* entry = window_.find(header.transfer, header.chunk);
  if (entry == nullptr || !entry->is_read || !(entry->state == ChunkOut::State::kOut) ||
      entry->bytes != header.payload_bytes)
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("data for chunk {} of transfer {}, which was not asked for",
                           header.chunk, header.transfer));
  entry->state.step(ChunkOut::State::kArriving);
  entry->landing = chunk;
  if (entry->transfer == nullptr) {  // cancelled meanwhile
    core_.shared.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    chunk->drop(TCPX_CANCELLED);
    return {};
  }
  const Plan& plan = entry->transfer->plan;
  const Chunk& part = plan.chunks[entry->chunk];
  plan.local_memory(part, &chunk->destination, &chunk->regions);
  chunk->place = part.local;
  return {};
}

void ChunksOut::data_comes_later(const wire::Header& header) {
  ChunkOut* entry = window_.find(header.transfer, header.chunk);
  entry->state.step(ChunkOut::State::kOut);
  entry->landing = nullptr;
  lacks_slot(*entry);
}

void ChunksOut::data_lacks_slot(const wire::Header& header) {
  if (ChunkOut* entry = window_.find(header.transfer, header.chunk)) lacks_slot(*entry);
}

void ChunksOut::data_moves(const wire::Header& header) {
  window_.find(header.transfer, header.chunk)->state.step(ChunkOut::State::kPlacing);
}

void ChunksOut::data_moved(const wire::Header& header, const MoveEnd& end) {
  ChunkOut* entry = window_.find(header.transfer, header.chunk);
  if (entry == nullptr) return;
  if (entry->lacks_slot) lacks_none(*entry, end.begun != 0 ? end.begun : now_ns());
  moved(*entry, end);
}

void ChunksOut::data_placed(const RxChunk& chunk) {
  ChunkOut* entry = window_.find(chunk.header.transfer, chunk.header.chunk);
  if (entry == nullptr) return;
  entry->landing = nullptr;
  entry->copied = chunk.copied + (chunk.slot == nullptr ? 0 : chunk.header.payload_bytes);
  settle(*entry, chunk.refusal);
}

// ---- what waits for a slot, for receipts -----------------------------------------------------

// A lane without room or credit for a chunk waits for its peer, and not for slots.
void ChunksOut::want_slots_no_more() {
  const bool wants = core_.open() && window_.may_hold_more() && core_.lane->payload_credit() > 0;
  if (wants && core_.moves.starved() == wanted_) return;
  wanted_ = 0;
  refused_ = {};
  core_.peer.transfers().slots_not_wanted(core_.index);
}

void ChunksOut::dealt_lacks_slot() {
  if (std::exchange(dealt_lacks_slot_, true)) return;
  core_.peer.transfers().chunk_without_slot(*dealt_.transfer, dealt_.transfer_id);
}

void ChunksOut::dealt_lacks_none() {
  if (!std::exchange(dealt_lacks_slot_, false)) return;
  core_.peer.transfers().chunk_has_slot(*dealt_.transfer, dealt_.transfer_id, now_ns());
}

void ChunksOut::lacks_slot(ChunkOut& entry) {
  if (entry.transfer == nullptr || std::exchange(entry.lacks_slot, true)) return;
  core_.peer.transfers().chunk_without_slot(*entry.transfer, entry.transfer_id);
}

void ChunksOut::lacks_none(ChunkOut& entry) {
  if (entry.lacks_slot) lacks_none(entry, now_ns());
}

void ChunksOut::lacks_none(ChunkOut& entry, Nanos since) {
  if (!std::exchange(entry.lacks_slot, false) || entry.transfer == nullptr) return;
  core_.peer.transfers().chunk_has_slot(*entry.transfer, entry.transfer_id, since);
}

void ChunksOut::has_slot(const wire::Header& header) {
  if (ChunkOut* entry = window_.find(header.transfer, header.chunk)) lacks_none(*entry);
}

void ChunksOut::moved(const ChunkOut& entry, const MoveEnd& end) {
  if (entry.transfer == nullptr) return;
  core_.peer.transfers().chunk_moved(*entry.transfer, entry.transfer_id, end, entry.bytes);
}

// ---- fences ----------------------------------------------------------------------------------

size_t ChunksOut::stop(const TransferState& transfer, uint64_t post) {
  return stop_if([&](const std::shared_ptr<TransferState>& of, uint64_t of_post) {
    return of.get() == &transfer && of_post == post;
  });
}

size_t ChunksOut::stop_users_of(uint64_t region) {
  return stop_if([region](const std::shared_ptr<TransferState>& of, uint64_t) {
    return of != nullptr && of->plan.uses(region);
  });
}

// Those for which mine(transfer, post) is true.
template <class Mine>
size_t ChunksOut::stop_if(Mine&& mine) {
  if (core_.load.dealt.load(std::memory_order_acquire) &&
      mine(dealt_.transfer, dealt_.transfer_id)) {
    ChunkWork work;
    take_dealt(&work);
    core_.peer.transfers().settle(work, TCPX_CANCELLED, "the caller");
  }
  size_t held = 0;
  window_.each([&](ChunkOut& entry) {
    if (mine(entry.transfer, entry.transfer_id) && !stop(entry)) ++held;
  });
  return held;
}

// False: its memory is still touched, by what cannot be called back.
bool ChunksOut::stop(ChunkOut& entry) {
  TxFrame* frame = entry.frame;
  RxChunk* landing = entry.landing;
  if (frame != nullptr && frame->move != 0) return false;
  if (landing != nullptr && landing->state == RxChunk::State::kPlacing &&
      !core_.moves.take_back(landing, TCPX_CANCELLED))
    return false;
  if (landing != nullptr && landing->state == RxChunk::State::kLanding) {
    landing->drop(TCPX_CANCELLED);
    core_.shared.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
  }
  if (landing != nullptr && landing->slot == nullptr && core_.lane->holds(landing)) return false;
  if (frame != nullptr && (core_.moves.unwait(frame) || core_.lane->unqueue(frame))) {
    entry.frame = nullptr;
    give_back(frame);
    settle(entry, TCPX_CANCELLED);  // never left: settled here and now
    return true;
  }
  if (frame != nullptr && !entry.is_read && !core_.lane->abandon(frame, TCPX_CANCELLED) &&
      frame->slot == nullptr)
    return false;
  if (entry.is_read) {
    lacks_none(entry);
    entry.transfer.reset();
  }
  return true;
}

// ---- the end ---------------------------------------------------------------------------------

// Allocates nothing. A WRITE may still sit in the peer's receive buffer and land: it is sent again
// only after the peer has closed its end. A READ can be asked again at once.
void ChunksOut::give_up(std::vector<ChunkWork>* writes, std::vector<ChunkWork>* reads) {
  wants_slot_ = false;
  if (wanted_ != 0) want_slots_no_more();
  dealt_lacks_none();
  window_.give_up_all([this](ChunkOut& entry) {
    lacks_none(entry);
    core_.shared.counters.chunks_live.fetch_sub(1, std::memory_order_relaxed);
    if (entry.transfer == nullptr) return;
    auto& list = entry.is_read ? lost_reads_ : lost_writes_;
    list.push_back({std::move(entry.transfer), entry.transfer_id, entry.chunk});
  });
  core_.load.in_flight.store(0, std::memory_order_relaxed);
  frames_.each([this](TxFrame* frame) { core_.moves.give_back(frame); });
  frames_.drain();
  *writes = std::move(lost_writes_);
  *reads = std::move(lost_reads_);
}

const ChunkOut* ChunksOut::stalled(Nanos now, Nanos age) const {
  const ChunkOut* oldest = window_.oldest();
  return oldest == nullptr || now - oldest->since < age ? nullptr : oldest;
}

}  // namespace tcpx
