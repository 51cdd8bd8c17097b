// The way of a transfer: posted, cut out chunk by chunk by the lanes that have room, settled,
// ended.
#include <algorithm>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

// Chunks a lane may hold however little is left: one on its way, one behind it.
constexpr uint32_t kLeastHeld = 2;

// Room for one more, so that adding it cannot fail.
template <class T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<size_t>(64, 2 * list.size()));
}

}  // namespace

// ---- posting -------------------------------------------------------------------

Status Peer::post(const std::shared_ptr<TransferState>& transfer, std::shared_ptr<Notice> notice,
                  Nanos deadline) {
  PeerLane* small = nullptr;
  LaneList others;
  LanesKept kept;
  {
    std::lock_guard lock(mu);
    if (state_ == State::kEnded) return end_status_;
    if (transfer->live)
      return bad_call(TCPX_BUSY, "the transfer is in progress; wait for it or cancel it first");
    if (transfer->loose > 0)
      return bad_call(TCPX_BUSY,
                      strf("{} chunks of an earlier post have no answer yet and may still land at "
                           "the peer; tcpx_cancel waits for them",
                           transfer->loose));
    // Under the lock that deregister takes after retiring the id: either it finds this transfer
    // among the live ones, or we find the id retired here.
    for (uint64_t region : transfer->plan.local_regions)
      if (!shared_.regions.is_live(region))
        return bad_call(TCPX_REGION_REVOKED,
                        strf("local region {:#x} was deregistered; prepare the transfer "
                             "anew",
                             region));
    TransferState& t = *transfer;
    // From here on nothing is allocated: it is posted wholly or not at all.
    make_room(live_);
    make_room(run_queue_);
    if (t.shares.size() < lanes_.size()) t.shares.resize(lanes_.size());
    t.id = next_transfer_id_++;
    t.epoch = epoch_of_peer_.load(std::memory_order_relaxed);
    t.home = kAnyLane;
    t.next_chunk = t.in_flight = t.settled = 0;
    t.again.clear();
    t.ending = t.held = false;
    t.status = {};
    t.deadline = deadline;
    t.notice = std::move(notice);
    t.notice_behind = false;
    t.posted_at = now_ns();
    t.first_out = t.last_settled = t.notice_out = t.ended_at = 0;
    t.retries = t.staging_bytes = 0;
    t.lanes_lost = 0;
    std::fill(t.shares.begin(), t.shares.end(), LaneShare{});
    t.live = true;
    t.live_at = live_.size();
    live_.push_back(transfer);
    t.code.store(TCPX_IN_PROGRESS);
    shared_.counters.transfers_posted.fetch_add(1, std::memory_order_relaxed);
    if (state_ == State::kUp) small = lane_for_small_locked();
    kept = lanes_.keep();
    if (small != nullptr && stays_on_one_lane_locked(t, *small)) t.home = small->index();
    if (t.plan.chunks.size() > 1 && t.home == kAnyLane) others = lanes_locked();
    deal_locked(transfer, others);
    enqueue_locked(transfer);
  }
  if (small != nullptr) start(*small, others, transfer->plan.bytes >= tuning::kLongPost);
  return {};
}

// Lanes on different interfaces always add up. On one interface they add loops, and what another
// one gets has to be worth waking it, if it sleeps.
bool Peer::stays_on_one_lane_locked(const TransferState& transfer, const PeerLane& first) const {
  if (transfer.plan.chunks.size() < 2 || !shared_.options.adaptive_striping) return false;
  if (transfer.plan.bytes >= 2 * tuning::kWorthWaking) return false;
  for (auto& lane : lanes_) {
    if (!lane || !lane->open() || lane.get() == &first) continue;
    if (lane->rail() != first.rail() || lane->has_own_loop()) return false;
    if (&lane->loop() != &first.loop() && lane->loop().awake()) return false;
  }
  return true;
}

// Sends on this thread if the loop is free: no thread switch before the first byte. Lanes of
// other loops, and what is left, are woken.
void Peer::start(PeerLane& first, const LaneList& others, bool is_long) {
  Loop* here = &first.loop();
  for (PeerLane* lane : others)  // before this thread is busy sending
    if (lane->open() && &lane->loop() != here) lane->wake();
  auto send = [&] {
    first.lane().flush(kPostBudget);
    for (PeerLane* lane : others)
      if (lane != &first && lane->open() && &lane->loop() == here) lane->lane().flush(kPostBudget);
  };
  bool sent = here->try_exclusive(send, is_long ? Loop::Length::kLong : Loop::Length::kShort);
  if (sent) return;
  first.wake();
  for (PeerLane* lane : others)
    if (lane->open() && &lane->loop() == here) lane->wake();
}

// The first chunk of every lane that has nothing to do. If they all came for it at once, each would
// wait for the others: the last of four lanes then began 1 MiB 5 us after the first.
void Peer::deal_locked(const std::shared_ptr<TransferState>& transfer, const LaneList& lanes) {
  if (state_ != State::kUp || !run_queue_.empty() || !shared_.options.adaptive_striping) return;
  for (PeerLane* lane : lanes) {
    // A lane with a loop of its own may hang in a plugin: what it has been given cannot be taken
    // back.
    if (!transfer->has_work()) return;
    if (lane->open() && lane->idle() && !lane->has_own_loop())
      lane->deal(hand_out_locked(transfer, lane->index()));
  }
}

void Peer::enqueue_locked(const std::shared_ptr<TransferState>& transfer) {
  if (transfer->queued || !transfer->has_work()) return;
  transfer->queued = true;
  run_queue_.push_back(transfer);
  chunks_waiting_.store(true, std::memory_order_release);
}

// The open lane with the fewest chunks outstanding; round robin keeps its own order.
PeerLane* Peer::lane_for_small_locked() {
  if (!shared_.options.adaptive_striping && next_round_robin_ < lanes_.size()) {
    PeerLane* lane = lanes_[next_round_robin_].get();
    if (lane && lane->open()) return lane;
  }
  PeerLane* best = nullptr;
  for (auto& lane : lanes_)
    if (lane && lane->open() && (best == nullptr || lane->in_flight() < best->in_flight()))
      best = lane.get();
  return best;
}

// ---- the way of a chunk (from lanes) -------------------------------------------------------

bool Peer::next_chunk(PeerLane& lane, ChunkWork* out) {
  if (!chunks_waiting_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mu);
  if (run_queue_.empty()) chunks_waiting_.store(false, std::memory_order_relaxed);
  if (state_ != State::kUp || run_queue_.empty()) return false;
  bool in_turn = !shared_.options.adaptive_striping && live_lanes_locked() > 1;
  if (in_turn ? !is_turn_of_locked(lane) : lane.in_flight() > 0 && left_to_others_locked(lane))
    return false;
  if (!take_turn_locked(lane)) return false;
  if (in_turn) pass_turn_locked();
  TransferState& t = *run_queue_[turn_];
  *out = hand_out_locked(run_queue_[turn_], lane.index());

  if (!t.has_work()) {
    if (t.notice != nullptr && lane.takes_notice_behind(t)) {
      t.notice_behind = true;
      out->notice = t.notice;
    }
    t.queued = false;
    std::swap(run_queue_[turn_], run_queue_.back());
    run_queue_.pop_back();
    if (run_queue_.empty()) chunks_waiting_.store(false, std::memory_order_relaxed);
  }
  return true;
}

ChunkWork Peer::hand_out_locked(const std::shared_ptr<TransferState>& transfer, uint32_t lane) {
  TransferState& t = *transfer;
  uint32_t chunk;
  if (!t.again.empty()) {
    chunk = t.again.back();
    t.again.pop_back();
  } else {
    chunk = t.next_chunk++;
  }
  ++t.in_flight;
  if (t.first_out == 0) t.first_out = now_ns();
  if (t.shares.size() <= lane) t.shares.resize(lanes_.size());
  t.shares[lane].bytes += t.plan.chunks[chunk].bytes;
  t.shares[lane].chunks += 1;
  return {transfer, t.id, chunk, t.epoch, t.home == kAnyLane && lanes_.size() > 1};
}

// Round robin: whether the next chunk is this lane's. A lane that is gone loses its turn; one that
// has it is told.
bool Peer::is_turn_of_locked(const PeerLane& asking) {
  while (!lanes_[next_round_robin_] || !lanes_[next_round_robin_]->open()) pass_turn_locked();
  if (next_round_robin_ == asking.index()) return true;
  lanes_[next_round_robin_]->wake();
  return false;
}

void Peer::pass_turn_locked() {
  next_round_robin_ = next_round_robin_ + 1 < lanes_.size() ? next_round_robin_ + 1 : 0;
}

// Moves turn_ to the next transfer that this lane may carry.
bool Peer::take_turn_locked(const PeerLane& lane) {
  for (size_t tried = 0; tried < run_queue_.size(); ++tried) {
    turn_ = turn_ + 1 < run_queue_.size() ? turn_ + 1 : 0;
    uint32_t home = run_queue_[turn_]->home;
    if (home == kAnyLane || home == lane.index()) return true;
  }
  return false;
}

// A transfer is as fast as the lane that ends last. So a lane holds no more than half its share of
// what is left, and the very last chunks go to lanes that have nothing to do. Matters most for
// READ, where a lane could ask for its whole window at once: 4 MiB went over one of two lanes, 16
// MiB over two of four.
bool Peer::left_to_others_locked(const PeerLane& asking) {
  if (lanes_.size() < 2 || run_queue_.size() > 1) return false;
  const TransferState& t = *run_queue_[0];
  if (t.home != kAnyLane) return false;
  size_t left = t.again.size() + (t.plan.chunks.size() - t.next_chunk);
  size_t open = 0, idle = 0;
  for (auto& lane : lanes_) {
    if (!lane || !lane->open()) continue;
    ++open;
    idle += lane.get() != &asking && lane->idle();
  }
  bool has_its_share = t.plan.chunks.size() > 1 &&
                       asking.in_flight() >= std::max<size_t>(kLeastHeld, left / open / 2);
  if (open < 2 || (!has_its_share && (left >= open || left > idle))) return false;
  for (auto& lane : lanes_)
    if (lane && lane.get() != &asking && lane->open() && lane->idle()) lane->wake();
  return true;
}

void Peer::settle(const ChunkWork& work, uint32_t, tcpx_code code, const char* who) {
  std::lock_guard lock(mu);
  TransferState& t = *work.transfer;
  if (!t.live || t.id != work.transfer_id) return loose_one_known_locked(t);
  --t.in_flight;
  if (code == TCPX_OK) {
    ++t.settled;
    t.staging_bytes += work.copied;
  } else if (!t.ending) {
    const Chunk& chunk = t.plan.chunks[work.chunk];
    const wire::Piece& piece = t.plan.runs[chunk.first_run].remote;
    fail_locked(
        work.transfer,
        transfer_error(code, strf("{} refused chunk {} ({} at region {:#x} offset "
                                  "{}): {}",
                                  who, work.chunk, t.plan.op == TCPX_WRITE ? "write" : "read",
                                  piece.region, piece.offset + chunk.offset, code_name(code))));
    return;
  }
  progress_locked(work.transfer);
}

// Ends the transfer if it can end now: everything settled, or failing and nothing in flight.
void Peer::progress_locked(const std::shared_ptr<TransferState>& transfer) {
  TransferState& t = *transfer;
  if (t.ending) {
    t.ended.notify_all();  // a cancel may be waiting for in_flight
    if (t.in_flight == 0 && !t.status.ok()) finish_locked(t, t.status.code());
    return;
  }
  if (t.settled < t.plan.chunks.size()) return;
  if (t.last_settled == 0) t.last_settled = now_ns();
  if (t.notice == nullptr) return finish_locked(t, TCPX_OK);
  t.notice_out = t.notice_behind ? t.last_settled : now_ns();
  if (t.notice_behind) return;  // its answer comes behind that of the last chunk
  t.notice->transfer = transfer;
  queue_notice_locked(t.notice);
}

void Peer::fail_transfer(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                         const Status& status) {
  std::lock_guard lock(mu);
  if (transfer->live && transfer->id == post && !transfer->ending) fail_locked(transfer, status);
}

void Peer::fail_locked(const std::shared_ptr<TransferState>& transfer, const Status& status) {
  transfer->ending = true;
  transfer->status = status;
  if (transfer->queued) {
    std::erase(run_queue_, transfer);
    transfer->queued = false;
  }
  progress_locked(transfer);
}

void Peer::finish_locked(TransferState& t, tcpx_code code) {
  if (!t.live) return;
  if (t.queued) std::erase_if(run_queue_, [&](auto& entry) { return entry.get() == &t; });
  t.queued = t.live = false;
  std::shared_ptr<TransferState> keep = std::move(live_[t.live_at]);
  if (t.live_at + 1 != live_.size()) {
    live_[t.live_at] = std::move(live_.back());
    live_[t.live_at]->live_at = t.live_at;
  }
  live_.pop_back();
  t.ending = true;
  if (t.plan.op == TCPX_WRITE) t.loose = t.in_flight + (t.notice_behind ? 1 : 0);
  t.close_at = kNever;
  t.asked.reset();
  if (t.notice != nullptr && code != TCPX_OK) withdraw_notice_locked(t.notice);
  t.notice.reset();
  t.ended_at = now_ns();
  auto& counter =
      code == TCPX_OK ? shared_.counters.transfers_done : shared_.counters.transfers_failed;
  counter.fetch_add(1, std::memory_order_relaxed);
  t.code.store(code);
  if (t.waiters > 0) t.ended.notify_all();
  nudge_drivers_locked(t);
  shared_.log.trace("peer {}: transfer {} ended: {} ({} bytes in {} us)", id_, t.id,
                    code_name(code), t.plan.bytes, (t.ended_at - t.posted_at) / kMicro);
}

}  // namespace tcpx
