// Notifications to and from a peer: exactly once, whatever lanes are lost on the way.
#include <algorithm>

#include "base/text.h"
#include "base/wait.h"
#include "engine/notice_queue.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

Status notice_refused(tcpx_code code) {
  return transfer_error(code,
                        "the peer could not take the notification: it is longer than its "
                        "max_notify_bytes, or its application does not read them");
}

}  // namespace

void Peer::queue_notice_locked(const std::shared_ptr<Notice>& notice) {
  notice->id = next_notice_id_++;
  pending_notices_[notice->id] = notice;
  try {
    notices_.push_back(notice);
  } catch (...) {
    pending_notices_.erase(notice->id);
    throw;
  }
  notices_waiting_.store(true, std::memory_order_release);
  if (PeerLane* lane = lane_for_small_locked()) lane->wake();
}

Status Peer::notify(std::shared_ptr<Notice> notice, Nanos deadline) {
  PeerLane* lane;
  LanesKept kept;
  {
    std::lock_guard lock(mu);
    if (state_ == State::kEnded) return end_status_;
    kept = lanes_.keep();
    queue_notice_locked(notice);
    lane = lane_for_small_locked();
  }
  if (lane != nullptr) lane->loop().try_exclusive([&] { lane->lane().flush(kPostBudget); });
  std::unique_lock<std::mutex> lock(mu);
  if (wait_until(notice->ended, lock, deadline, [&] { return notice->confirmed; }))
    return notice->status;
  notice->left_alone = true;
  return peer_error(TCPX_DEADLINE,
                    "the peer did not confirm the notification in time; it may or "
                    "may not be delivered");
}

std::shared_ptr<Notice> Peer::next_notice(PeerLane& lane) {
  if (!notices_waiting_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mu);
  if (notices_.empty()) notices_waiting_.store(false, std::memory_order_relaxed);
  if (state_ != State::kUp || notices_.empty()) return nullptr;
  // The rest follows as these are confirmed: the peer need not hold an answer for each of them.
  if (notices_out_ >= PeerLane::kMostNotices) return nullptr;
  ++notices_out_;
  std::shared_ptr<Notice> notice = std::move(notices_.front());
  notices_.pop_front();
  notice->lane = lane.index();
  shared_.counters.notifications_out.fetch_add(1, std::memory_order_relaxed);
  return notice;
}

void Peer::notice_confirmed(uint64_t id, tcpx_code code) {
  std::lock_guard lock(mu);
  auto found = pending_notices_.find(id);
  if (found == pending_notices_.end()) return;
  std::shared_ptr<Notice> notice = std::move(found->second);
  pending_notices_.erase(found);
  if (notice->lane != UINT32_MAX) --notices_out_;
  if (pending_notices_.empty()) changed_.notify_all();
  notice->confirmed = true;
  if (code != TCPX_OK) notice->status = notice_refused(code);
  if (code != TCPX_OK && notice->is_lone())
    shared_.log.warn("peer {} ({}): {}", id_, escaped(name_), notice->status.text());
  notice->ended.notify_all();
  std::shared_ptr<TransferState> transfer = std::move(notice->transfer);
  if (transfer == nullptr || !transfer->live || transfer->notice != notice || transfer->ending)
    return;
  transfer->status = notice->status;
  finish_locked(*transfer, notice->status.code());
}

size_t Peer::lone_notices_locked() const {
  return static_cast<size_t>(std::count_if(pending_notices_.begin(), pending_notices_.end(),
                                           [](auto& entry) { return entry.second->is_lone(); }));
}

tcpx_code Peer::notice_arrived(uint64_t id, MessageBytes&& bytes) {
  std::lock_guard lock(mu);
  if (id < notices_seen_below_ || notices_seen_.count(id) > 0) {
    shared_.counters.notification_repeats.fetch_add(1);
    return TCPX_OK;  // sent again because a lane was lost; it is delivered already
  }
  if (!push_notice_locked(std::move(bytes))) return TCPX_LIMIT;
  notices_seen_.insert(id);
  while (!notices_seen_.empty() && *notices_seen_.begin() == notices_seen_below_) {
    notices_seen_.erase(notices_seen_.begin());
    ++notices_seen_below_;
  }
  return TCPX_OK;
}

bool Peer::push_notice_locked(MessageBytes&& bytes) {
  if (!shared_.inbox->push(id_, std::move(bytes))) return false;
  shared_.counters.notifications_in.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// ---- directly behind the data ---------------------------------------------------------------

// Sent once, on one lane, so it needs no id. What becomes of it when the lane is lost: see
// lane_down_confirmed.
tcpx_code Peer::notice_behind_arrived(MessageBytes&& bytes) {
  std::lock_guard lock(mu);
  return push_notice_locked(std::move(bytes)) ? TCPX_OK : TCPX_LIMIT;
}

Status Peer::notice_behind_confirmed(const NoticeBehind& notice, tcpx_code code) {
  std::lock_guard lock(mu);
  TransferState& t = *notice.transfer;
  if (!t.live || t.id != notice.transfer_id) {
    loose_one_known_locked(t);
    return {};
  }
  // Whatever it says: with chunks under way the transfer must not end, its memory is in use.
  if (code != TCPX_BUSY && !t.ending && t.settled < t.plan.chunks.size())
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("the notification of transfer {} is answered before its data", t.id));
  notice_behind_ended_locked(notice.transfer, code);
  return {};
}

// TCPX_BUSY: it was not delivered and will not be, as if it had not been sent. Delivered while the
// transfer was being cancelled: it is done, all the same.
void Peer::notice_behind_ended_locked(const std::shared_ptr<TransferState>& transfer,
                                      tcpx_code code) {
  TransferState& t = *transfer;
  t.notice_behind = false;
  bool done = code == TCPX_OK && t.status.ok() && t.settled == t.plan.chunks.size();
  if (code == TCPX_BUSY || (t.ending && !done)) return progress_locked(transfer);
  shared_.counters.notifications_out.fetch_add(1, std::memory_order_relaxed);
  if (code != TCPX_OK) t.status = notice_refused(code);
  finish_locked(t, code);
}

// Its notification was delivered, so all its chunks are in place.
void Peer::settle_by_notice_locked(TransferState& t, std::vector<ChunkWork>* chunks) {
  size_t settled = std::erase_if(*chunks, [&](const ChunkWork& work) {
    return work.transfer.get() == &t && work.transfer_id == t.id;
  });
  t.in_flight -= static_cast<uint32_t>(settled);
  t.settled += static_cast<uint32_t>(settled);
  t.last_settled = t.notice_out = now_ns();
}

}  // namespace tcpx
