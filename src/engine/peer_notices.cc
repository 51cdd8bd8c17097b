// Notifications to and from a peer: exactly once, whatever lanes are lost on the way.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/wait.h"
#include "engine/notice_queue.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

Status notice_refused(tcpx_code code) {
  return transfer_error(code,
                        "the peer does not take the notification: it is longer than its "
                        "max_notify_bytes");
}

// What a queued notification takes beside its bytes.
constexpr uint64_t kNoticeOverhead = 256;
// Of all that are on lanes, unless it is a single one: what is sent in vain to a peer that has no
// room.
constexpr uint64_t kMostNoticeBytes = 16u << 20;
// How long a peer without room is left alone.
constexpr Nanos kFirstPause = 20 * kMilli, kLongestPause = 320 * kMilli;

}  // namespace

// ---- out -----------------------------------------------------------------------------------

void Peer::queue_notice_locked(const std::shared_ptr<Notice>& notice) {
  notice->id = next_notice_id_++;
  pending_notices_[notice->id] = notice;
  try {
    notices_[notice->id] = notice;
  } catch (...) {
    pending_notices_.erase(notice->id);
    throw;
  }
  notices_waiting_.store(true, std::memory_order_release);
  if (PeerLane* lane = lane_for_small_locked()) lane->wake();
}

// Those that nobody waits for must not heap up while the peer's application does not read.
bool Peer::outbox_takes_locked(uint64_t bytes) const {
  return outbox_held_ == 0 || outbox_held_ + bytes <= shared_.options.outbox_bytes;
}

Status Peer::notify(std::shared_ptr<Notice> notice, Nanos deadline) {
  PeerLane* lane;
  LanesKept kept;
  notice->outbox_bytes = notice->bytes.size() + kNoticeOverhead;
  {
    std::unique_lock<std::mutex> lock(mu);
    wait_until(changed_, lock, deadline, [&] {
      return state_ == State::kEnded || outbox_takes_locked(notice->outbox_bytes);
    });
    if (state_ == State::kEnded) return end_status_;
    kept = lanes_.keep();
    if (!outbox_takes_locked(notice->outbox_bytes))
      return peer_error(TCPX_LIMIT,
                        strf("{} bytes of notifications wait until the peer's application reads "
                             "(outbox_bytes is {}); this one was not sent",
                             outbox_held_, shared_.options.outbox_bytes));
    outbox_held_ += notice->outbox_bytes;
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

// The oldest one that is not out. The rest follows as these are confirmed: the peer need not hold
// an answer for each of them, nor remember more ids than a span, and one that has no room is not
// sent many in vain.
std::shared_ptr<Notice> Peer::next_notice(PeerLane& lane) {
  if (!notices_waiting_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mu);
  auto first = notices_.begin();
  bool ready = state_ == State::kUp && first != notices_.end() && notices_paused_until_ == 0;
  if (ready) {
    size_t most = notice_pause_ == 0 ? PeerLane::kMostNotices : 1;
    ready =
        notices_out_ < most && first->first - pending_notices_.begin()->first < NoticesSeen::kSpan;
    if (notices_out_ > 0 && notice_bytes_out_ + first->second->bytes.size() > kMostNoticeBytes)
      ready = false;
  }
  if (!ready) {  // until an answer comes, or the pause ends
    notices_waiting_.store(state_ != State::kUp && !notices_.empty(), std::memory_order_relaxed);
    return nullptr;
  }
  std::shared_ptr<Notice> notice = std::move(first->second);
  notices_.erase(first);
  notice->lane = lane.index();
  ++notices_out_;
  notice_bytes_out_ += notice->bytes.size();
  shared_.counters.notifications_out.fetch_add(1, std::memory_order_relaxed);
  return notice;
}

// It is not, or no longer, on a lane.
void Peer::notice_back_locked(Notice& notice) {
  if (notice.lane == UINT32_MAX) return;
  notice.lane = UINT32_MAX;
  --notices_out_;
  notice_bytes_out_ -= notice.bytes.size();
}

void Peer::send_notice_again_locked(const std::shared_ptr<Notice>& notice) {
  notice_back_locked(*notice);
  notices_[notice->id] = notice;
  notices_waiting_.store(true, std::memory_order_release);
}

// The peer has no room for it now. Its application may read, so it comes again, a little later.
void Peer::notice_held_back_locked(const std::shared_ptr<Notice>& notice) {
  bool forgotten = notice->transfer != nullptr &&
                   (!notice->transfer->live || notice->transfer->notice != notice);
  if (forgotten) return forget_notice_locked(notice);
  send_notice_again_locked(notice);
  shared_.counters.notifications_held_back.fetch_add(1, std::memory_order_relaxed);
  if (notices_paused_until_ != 0) return;  // one of several that were out
  notice_pause_ = std::clamp(2 * notice_pause_, kFirstPause, kLongestPause);
  notices_paused_until_ = now_ns() + notice_pause_;
}

void Peer::end_notice_pause(Nanos now) {
  std::lock_guard lock(mu);
  if (notices_paused_until_ == 0 || now < notices_paused_until_) return;
  notices_paused_until_ = 0;
  notices_waiting_.store(true, std::memory_order_release);
  if (PeerLane* lane = lane_for_small_locked()) lane->wake();
}

void Peer::forget_notice_locked(const std::shared_ptr<Notice>& notice) {
  notice_back_locked(*notice);
  notices_.erase(notice->id);
  pending_notices_.erase(notice->id);
  outbox_held_ -= std::exchange(notice->outbox_bytes, 0);
  notice->transfer.reset();
  changed_.notify_all();
}

// The transfer it belongs to has failed: it is not sent if it has not been.
void Peer::withdraw_notice_locked(const std::shared_ptr<Notice>& notice) {
  if (notice->id != 0 && notice->lane == UINT32_MAX && !notice->confirmed)
    forget_notice_locked(notice);
}

void Peer::notice_confirmed(uint64_t id, tcpx_code code) {
  std::lock_guard lock(mu);
  auto found = pending_notices_.find(id);
  if (found == pending_notices_.end() || found->second->lane == UINT32_MAX) return;
  std::shared_ptr<Notice> notice = found->second;
  if (!notices_.empty()) notices_waiting_.store(true, std::memory_order_release);
  if (code == TCPX_BUSY) return notice_held_back_locked(notice);
  notice_pause_ = 0;
  std::shared_ptr<TransferState> transfer = notice->transfer;
  forget_notice_locked(notice);
  notice->confirmed = true;
  if (code != TCPX_OK) notice->status = notice_refused(code);
  if (code != TCPX_OK && notice->left_alone && transfer == nullptr)
    shared_.log.warn("peer {} ({}): {}", id_, escaped(name_), notice->status.text());
  notice->ended.notify_all();
  if (transfer == nullptr || !transfer->live || transfer->notice != notice || transfer->ending)
    return;
  transfer->status = notice->status;
  finish_locked(*transfer, notice->status.code());
}

size_t Peer::lone_notices_locked() const {
  return static_cast<size_t>(std::count_if(pending_notices_.begin(), pending_notices_.end(),
                                           [](auto& entry) { return entry.second->is_lone(); }));
}

// ---- in ------------------------------------------------------------------------------------

bool Peer::notice_fits(uint64_t bytes) const {
  return bytes <= shared_.options.max_notify_bytes && shared_.inbox->fits(bytes);
}

bool Peer::reserve_notice(uint64_t bytes) {
  return shared_.inbox->reserve(*inbox_share_, bytes);
}

void Peer::notice_does_not_come(uint64_t bytes) {
  shared_.inbox->give_back(*inbox_share_, bytes);
}

// TCPX_BUSY: there is no room, and it is not remembered: it may come again.
tcpx_code Peer::notice_arrived(uint64_t id, MessageBytes&& bytes, bool reserved) {
  std::lock_guard lock(mu);
  if (notices_seen_.has(id)) {
    if (reserved) notice_does_not_come(bytes.size());
    shared_.counters.notification_repeats.fetch_add(1);
    return TCPX_OK;  // sent again because a lane was lost; it is delivered already
  }
  if (!push_notice_locked(std::move(bytes), reserved)) return TCPX_BUSY;
  notices_seen_.add(id);
  return TCPX_OK;
}

bool Peer::push_notice_locked(MessageBytes&& bytes, bool reserved) {
  if (!shared_.inbox->push(inbox_share_, std::move(bytes), reserved)) return false;
  shared_.counters.notifications_in.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// ---- directly behind the data ---------------------------------------------------------------

// Sent once, on one lane, so it needs no id. What becomes of it when the lane is lost: see
// lane_down_confirmed.
tcpx_code Peer::notice_behind_arrived(MessageBytes&& bytes, bool reserved) {
  std::lock_guard lock(mu);
  return push_notice_locked(std::move(bytes), reserved) ? TCPX_OK : TCPX_BUSY;
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
