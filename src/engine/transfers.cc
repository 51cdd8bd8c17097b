// The way of a transfer: posted, cut out chunk by chunk by the lanes that have room, settled,
// ended.
#include "engine/transfers.h"

#include <algorithm>

#include "base/text.h"
#include "engine/peer.h"
#include "path/tuning.h"

namespace tcpx {

namespace {

// Room for one more, so that adding it cannot fail.
template <class T>
void make_room(std::vector<T>& list) {
  if (list.size() == list.capacity()) list.reserve(std::max<size_t>(64, 2 * list.size()));
}

}  // namespace

// ---- posting -------------------------------------------------------------------------------

Status Transfers::post(const std::shared_ptr<TransferState>& transfer,
                       std::shared_ptr<Notice> notice, Nanos deadline) {
  PeerLane* first = nullptr;
  LaneList others;
  LanesKept kept;
  {
    PeerLock lock(state_);
    if (Status status = check_post(lock, *transfer); !status) return status;
    begin(lock, transfer, std::move(notice), deadline);
    kept = lock->lanes.keep();
    if (lock->session.up()) first = lock.lightest_lane();
    if (first != nullptr && stays_on_one_lane(lock, *transfer, *first))
      transfer->lanes = LaneBits::only(first->index());
    if (transfer->plan.chunks.size() > 1 && transfer->lanes.count() > 1) {
      others = lock.started_lanes();
      if (first != nullptr) deal(lock, transfer);
    }
    lock->scheduler.add(transfer);
  }
  if (first != nullptr) send_here(*first, others, transfer->plan.bytes >= tuning::kLongPost);
  return {};
}

Status Transfers::check_post(PeerLock& lock, const TransferState& t) const {
  if (lock->session.over()) return lock->session.end_status();
  if (t.released) return bad_call(TCPX_INVALID_ARGUMENT, "the transfer was released");
  if (t.live())
    return bad_call(TCPX_BUSY, "the transfer is in progress; wait for it or cancel it first");
  if (t.loose > 0)
    return bad_call(TCPX_BUSY,
                    strf("{} chunks of an earlier post have no answer yet and may still land at "
                         "the peer; tcpx_cancel waits for them",
                         t.loose));
  // Under the lock that deregister takes after retiring the id: either it finds this transfer
  // among the live ones, or we find the id retired here.
  for (uint64_t region : t.plan.local_regions)
    if (!shared_.regions.is_live(region))
      return bad_call(
          TCPX_REGION_REVOKED,
          strf("local region {:#x} was deregistered; prepare the transfer anew", region));
  return {};
}

// Wholly or not at all: what can fail comes first.
void Transfers::begin(PeerLock& lock, const std::shared_ptr<TransferState>& transfer,
                      std::shared_ptr<Notice> notice, Nanos deadline) {
  TransferState& t = *transfer;
  make_room(lock->live);
  lock->scheduler.make_room();
  if (t.shares.size() < lock->lanes.size()) t.shares.resize(lock->lanes.size());
  t.stage.step(TransferState::Stage::kMoving);
  t.id = lock->next_transfer_id++;
  t.epoch = peer_.epochs().of_peer();
  t.lanes = LaneBits::all();
  t.next_chunk = t.in_flight = t.settled = 0;
  t.again.clear();
  t.held = false;
  t.status = {};
  t.deadline = deadline;
  t.notice = std::move(notice);
  t.notice_behind = false;
  t.posted_at = now_ns();
  t.first_out = t.last_settled = t.notice_out = t.ended_at = 0;
  t.retries = t.staging_bytes = 0;
  t.lanes_lost = 0;
  t.staging = {};
  std::fill(t.shares.begin(), t.shares.end(), LaneShare{});
  t.live_at = lock->live.size();
  lock->live.push_back(transfer);
  t.code.store(TCPX_IN_PROGRESS);
  shared_.counters.transfers_posted.fetch_add(1, std::memory_order_relaxed);
}

// Lanes on different interfaces always add up. On one interface they add loops, and what another
// one gets has to be worth waking it, if it sleeps. Where the caller may not drive, somebody is
// woken in any case.
bool Transfers::stays_on_one_lane(PeerLock& lock, const TransferState& transfer,
                                  const PeerLane& first) const {
  if (transfer.plan.chunks.size() < 2 || !shared_.options.adaptive_striping) return false;
  if (transfer.plan.bytes >= 2 * tuning::kWorthWaking) return false;
  for (auto& lane : lock->lanes) {
    if (!lane || !lane->open() || lane.get() == &first) continue;
    if (lane->rail() != first.rail() || !lane->traits().caller_may_drive) return false;
    if (&lane->loop() != &first.loop() && lane->loop().awake()) return false;
  }
  return true;
}

// The first chunk of every lane that has nothing to do. If they all came for it at once, each would
// wait for the others: the last of four lanes then began 1 MiB 5 us after the first.
void Transfers::deal(PeerLock& lock, const std::shared_ptr<TransferState>& transfer) {
  Scheduler& scheduler = lock->scheduler;
  for (uint32_t lane = scheduler.next_to_deal(*transfer, 0); lane != kNoLane;
       lane = scheduler.next_to_deal(*transfer, lane + 1))
    lock->lanes[lane]->out().deal(scheduler.hand_out(transfer, lane));
}

// Sends on this thread if the loop is free: no thread switch before the first byte. Lanes of
// other loops, and what is left, are woken.
void Transfers::send_here(PeerLane& first, const LaneList& others, bool is_long) {
  Loop* here = &first.loop();
  for (PeerLane* lane : others)  // before this thread is busy sending
    if (lane->open() && &lane->loop() != here) lane->wake();
  auto send = [&] {
    first.lane().flush(Peer::kPostBudget);
    for (PeerLane* lane : others)
      if (lane != &first && lane->open() && &lane->loop() == here)
        lane->lane().flush(Peer::kPostBudget);
  };
  bool sent = here->try_exclusive(send, is_long ? Loop::Length::kLong : Loop::Length::kShort);
  if (sent) return;
  first.wake();
  for (PeerLane* lane : others)
    if (lane->open() && &lane->loop() == here) lane->wake();
}

// ---- the way of a chunk --------------------------------------------------------------------

bool Transfers::next_chunk(uint32_t lane, const NoMoreOf& no_more, const LaneNotices& notices,
                           ChunkWork* out, Scheduler::WhyNone* why) {
  *why = Scheduler::WhyNone::kOther;
  if (!may_have_chunks()) return false;
  PeerLock lock(state_);
  if (!lock->session.up()) return false;
  LaneBits wake;
  const bool found = lock->scheduler.next(lane, no_more, out, &wake);
  *why = lock->scheduler.why_none();
  lock.wake(wake);
  if (!found) return false;
  TransferState& t = *out->transfer;
  if (t.notice != nullptr && !t.has_work() && notices.may_follow(t)) {
    t.notice_behind = true;
    out->notice = t.notice;
  }
  return true;
}

void Transfers::slots_not_wanted(uint32_t lane) {
  PeerLock lock(state_);
  lock->scheduler.slots_not_wanted(lane);
}

void Transfers::chunk_without_slot(TransferState& t, uint64_t post) {
  PeerLock lock(state_);
  if (t.is_live_post(post)) t.staging.slots.one_more_without(now_ns());
}

void Transfers::chunk_has_slot(TransferState& t, uint64_t post, Nanos since) {
  PeerLock lock(state_);
  if (t.is_live_post(post)) t.staging.slots.one_less_without(since);
}

void Transfers::chunk_moved(TransferState& t, uint64_t post, const MoveEnd& move, uint64_t bytes) {
  PeerLock lock(state_);
  if (t.is_live_post(post)) t.staging.add(move, bytes);
}

void Transfers::settle(const ChunkWork& work, tcpx_code code, const char* who) {
  PeerLock lock(state_);
  TransferState& t = *work.transfer;
  if (!t.is_live_post(work.transfer_id)) return loose_one_known(lock, t);
  --t.in_flight;
  if (code == TCPX_OK) {
    ++t.settled;
    t.staging_bytes += work.copied;
  } else if (t.well()) {
    const Chunk& chunk = t.plan.chunks[work.chunk];
    const wire::Piece& piece = t.plan.runs[chunk.first_run].remote;
    begin_end(
        lock, t,
        transfer_error(code, strf("{} refused chunk {} ({} at region {:#x} offset {}): {}", who,
                                  work.chunk, t.plan.op == TCPX_WRITE ? "write" : "read",
                                  piece.region, piece.offset + chunk.offset, code_name(code))),
        kNever);
  }
  progress(lock, work.transfer);
}

void Transfers::fail(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                     const Status& status) {
  PeerLock lock(state_);
  if (!transfer->is_live_post(post) || !transfer->well()) return;
  begin_end(lock, *transfer, status, kNever);
  progress(lock, transfer);
}

// Ends the transfer if it can end now: everything settled, or failing and nothing in flight.
void Transfers::progress(PeerLock& lock, const std::shared_ptr<TransferState>& transfer) {
  TransferState& t = *transfer;
  if (!t.well()) {
    t.ended.notify_all();  // a cancel may be waiting for in_flight
    if (t.in_flight == 0 && t.stage == TransferState::Stage::kFailing)
      finish(lock, t, t.status.code());
    return;
  }
  if (!t.all_settled()) return;
  if (t.last_settled == 0) t.last_settled = now_ns();
  if (t.notice == nullptr) return finish(lock, t, TCPX_OK);
  if (t.moving()) t.stage.step(TransferState::Stage::kNotifying);
  t.notice_out = t.notice_behind ? t.last_settled : now_ns();
  if (t.notice_behind) return;  // its answer comes behind that of the last chunk
  t.notice->transfer = transfer;
  peer_.notices().queue(lock, t.notice);
}

// No more chunks. It ends with `status` when nothing of it is under way any more; with a `close_at`
// when lanes have let go of its memory, answered or not.
void Transfers::begin_end(PeerLock& lock, TransferState& t, const Status& status, Nanos close_at) {
  if (t.status.ok()) t.status = Status(status);  // wholly or not at all
  if (!(t.stage == TransferState::Stage::kFailing)) t.stage.step(TransferState::Stage::kFailing);
  lock->scheduler.remove(t);
  t.close_at = std::min(t.close_at, close_at);
}

void Transfers::finish(PeerLock& lock, TransferState& t, tcpx_code code) {
  if (!t.live()) return;
  lock->scheduler.remove(t);
  t.stage.step(TransferState::Stage::kEnded);
  std::vector<std::shared_ptr<TransferState>>& live = lock->live;
  std::shared_ptr<TransferState> keep = std::move(live[t.live_at]);
  if (t.live_at + 1 != live.size()) {
    live[t.live_at] = std::move(live.back());
    live[t.live_at]->live_at = t.live_at;
  }
  live.pop_back();
  if (t.plan.op == TCPX_WRITE) t.loose = t.in_flight + (t.notice_behind ? 1 : 0);
  t.close_at = kNever;
  t.fence.reset();
  if (t.notice != nullptr && code != TCPX_OK) peer_.notices().withdraw(lock, t.notice);
  t.notice.reset();
  t.ended_at = now_ns();
  t.staging.slots.stop(t.ended_at);
  auto& counter =
      code == TCPX_OK ? shared_.counters.transfers_done : shared_.counters.transfers_failed;
  counter.fetch_add(1, std::memory_order_relaxed);
  t.code.store(code);
  if (t.waiters > 0) t.ended.notify_all();
  nudge_drivers(t);
  shared_.log.trace("peer {}: transfer {} ended: {} ({} bytes in {} us)", state_.id, t.id,
                    code_name(code), t.plan.bytes, (t.ended_at - t.posted_at) / kMicro);
}

// ---- the session and its lanes ---------------------------------------------------------------

// Posted when nothing could be known: they count from now.
void Transfers::session_came_up(PeerLock& lock, uint64_t epoch) {
  for (auto& transfer : lock->live) transfer->epoch = epoch;
}

void Transfers::lane_lost(PeerLock& lock, PeerLane& lane) {
  for (auto& transfer : lock->live) {
    ++transfer->lanes_lost;
    transfer->lanes.remove(lane.index());
    if ((transfer->lanes & lock->scheduler.open_lanes()).empty()) transfer->lanes = LaneBits::all();
  }
  lock->scheduler.has_news();  // for lanes that had nothing to do with some of them
}

void Transfers::send_again(PeerLock& lock, const std::vector<ChunkWork>& works) {
  for (const ChunkWork& work : works) {
    TransferState& t = *work.transfer;
    if (!t.is_live_post(work.transfer_id)) {
      loose_one_known(lock, t);
      continue;
    }
    lock->scheduler.send_again(work);
    if (!t.well()) progress(lock, work.transfer);
  }
}

void Transfers::take_back(PeerLock& lock, const ChunkWork& work, uint32_t lane) {
  TransferState& t = *work.transfer;
  if (!t.is_live_post(work.transfer_id)) return loose_one_known(lock, t);
  lock->scheduler.take_back(work, lane);
  if (!t.well()) progress(lock, work.transfer);
}

// A notification that was delivered has all its data before it: none of that may be sent again, the
// peer's application may have other plans for the memory by now.
void Transfers::lost_lane_closed(PeerLock& lock, UnconfirmedWrites writes,
                                 const NoticesBrought& brought) {
  uint64_t number = writes.notices_before;
  for (const NoticeBehind& notice : writes.notices) {
    const bool delivered = brought.has(number++);
    TransferState& t = *notice.transfer;
    if (!t.is_live_post(notice.transfer_id)) {
      loose_one_known(lock, t);
      continue;
    }
    if (delivered) {
      auto settled = static_cast<uint32_t>(std::erase_if(writes.chunks, [&](const ChunkWork& work) {
        return work.transfer.get() == &t && work.transfer_id == t.id;
      }));
      t.in_flight -= settled;
      t.settled += settled;
      t.last_settled = t.notice_out = now_ns();
    }
    notice_behind_ended(lock, notice.transfer,
                        delivered ? wire::NoticeVerdict::kDelivered : wire::NoticeVerdict::kNotNow);
  }
  send_again(lock, writes.chunks);
}

void Transfers::end_all(PeerLock& lock, bool held) {
  while (!lock->live.empty()) {
    std::shared_ptr<TransferState> transfer = lock->live.back();
    transfer->held |= held;
    if (transfer->status.ok()) transfer->status = lock->session.end_status();
    finish(lock, *transfer, transfer->status.code());
  }
  lock->scheduler.remove_all();
}

// ---- notifications ---------------------------------------------------------------------------

void Transfers::notice_ended(PeerLock& lock, const std::shared_ptr<TransferState>& transfer,
                             const Notice& notice) {
  if (!transfer->live() || transfer->notice.get() != &notice || !transfer->well()) return;
  transfer->status = notice.status;
  finish(lock, *transfer, notice.status.code());
}

Status Transfers::notice_behind_answered(const NoticeBehind& notice, wire::NoticeVerdict verdict) {
  PeerLock lock(state_);
  TransferState& t = *notice.transfer;
  if (!t.is_live_post(notice.transfer_id)) {
    loose_one_known(lock, t);
    return {};
  }
  // Whatever it says: with chunks under way the transfer must not end, its memory is in use.
  if (verdict != wire::NoticeVerdict::kNotNow && t.well() && !t.all_settled())
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("the notification of transfer {} is answered before its data", t.id));
  notice_behind_ended(lock, notice.transfer, verdict);
  return {};
}

// kNotNow: it was not delivered and will not be, as if it had not been sent. Delivered while the
// transfer was being cancelled: it is done, all the same.
void Transfers::notice_behind_ended(PeerLock& lock, const std::shared_ptr<TransferState>& transfer,
                                    wire::NoticeVerdict verdict) {
  TransferState& t = *transfer;
  t.notice_behind = false;
  const bool done = verdict == wire::NoticeVerdict::kDelivered && t.status.ok() && t.all_settled();
  if (verdict == wire::NoticeVerdict::kNotNow || (!t.well() && !done))
    return progress(lock, transfer);
  shared_.counters.notifications_out.fetch_add(1, std::memory_order_relaxed);
  if (verdict == wire::NoticeVerdict::kNever) t.status = Notices::refused();
  finish(lock, t, t.status.code());
}

Status Transfers::status_of(const TransferState& transfer) {
  PeerLock lock(state_);
  return transfer.status;
}

}  // namespace tcpx
