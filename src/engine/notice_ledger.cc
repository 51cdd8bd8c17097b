#include "engine/notice_ledger.h"

#include <algorithm>
#include <utility>

#include "engine/notices_seen.h"

namespace tcpx {

namespace {

// Of all that are on lanes, unless it is a single one: what is sent in vain to a peer that has no
// room.
constexpr uint64_t kMostBytesOut = 16u << 20;
// How long a peer without room is left alone.
constexpr Nanos kFirstPause = 20 * kMilli, kLongestPause = 320 * kMilli;

}  // namespace

void NoticeLedger::queue(const std::shared_ptr<Notice>& notice) {
  notice->id = next_id_++;
  pending_[notice->id] = notice;
  try {
    queued_[notice->id] = notice;
  } catch (...) {
    pending_.erase(notice->id);
    throw;
  }
  notice->state.step(Notice::State::kQueued);
  waiting_.store(true, std::memory_order_release);
}

void NoticeLedger::take_outbox(Notice& notice) {
  outbox_held_ += notice.outbox_bytes;
}

// The rest follows as these are confirmed: the peer need not hold an answer for each of them, nor
// remember more ids than a span, and one that has no room is not sent many in vain.
std::shared_ptr<Notice> NoticeLedger::next(uint32_t lane) {
  auto first = queued_.begin();
  bool ready = first != queued_.end() && paused_until_ == 0;
  if (ready) {
    const size_t most = pause_ == 0 ? kMostOut : 1;
    ready = out_ < most && first->first - pending_.begin()->first < NoticesSeen::kSpan;
    if (out_ > 0 && bytes_out_ + first->second->bytes.size() > kMostBytesOut) ready = false;
  }
  if (!ready) {  // until an answer comes, or the pause ends
    waiting_.store(false, std::memory_order_relaxed);
    return nullptr;
  }
  std::shared_ptr<Notice> notice = std::move(first->second);
  queued_.erase(first);
  notice->state.step(Notice::State::kOut);
  notice->lane = lane;
  ++out_;
  bytes_out_ += notice->bytes.size();
  return notice;
}

void NoticeLedger::off_lane(Notice& notice) {
  if (!(notice.state == Notice::State::kOut)) return;
  notice.lane = kNoLane;
  --out_;
  bytes_out_ -= notice.bytes.size();
}

void NoticeLedger::send_again(const std::shared_ptr<Notice>& notice) {
  queued_[notice->id] = notice;
  off_lane(*notice);
  notice->state.step(Notice::State::kQueued);
  waiting_.store(true, std::memory_order_release);
}

NoticeLedger::Answered NoticeLedger::answered(uint64_t id, wire::NoticeVerdict verdict, Nanos now) {
  auto found = pending_.find(id);
  if (found == pending_.end() || !(found->second->state == Notice::State::kOut)) return {};
  std::shared_ptr<Notice> notice = found->second;
  if (!queued_.empty()) waiting_.store(true, std::memory_order_release);
  if (verdict == wire::NoticeVerdict::kNotNow) return {nullptr, hold_back(notice, now)};
  pause_ = 0;
  forget(notice);
  return {notice, false};
}

// The peer has no room for it now. Its application may read, so it comes again, a little later;
// unless its transfer has ended without it.
bool NoticeLedger::hold_back(const std::shared_ptr<Notice>& notice, Nanos now) {
  const TransferState* transfer = notice->transfer.get();
  if (transfer != nullptr && (!transfer->live() || transfer->notice != notice)) {
    forget(notice);
    notice->transfer.reset();
    return false;
  }
  send_again(notice);
  if (paused_until_ != 0) return true;  // one of several that were out
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  paused_until_ = now + pause_;
  return true;
}

void NoticeLedger::lane_lost(uint32_t lane) {
  for (auto& [id, notice] : pending_)
    if (notice->lane == lane) send_again(notice);
}

bool NoticeLedger::end_pause(Nanos now) {
  if (paused_until_ == 0 || now < paused_until_) return false;
  paused_until_ = 0;
  waiting_.store(true, std::memory_order_release);
  return true;
}

void NoticeLedger::forget(const std::shared_ptr<Notice>& notice) {
  off_lane(*notice);
  notice->state.step(Notice::State::kEnded);
  queued_.erase(notice->id);
  pending_.erase(notice->id);
  outbox_held_ -= std::exchange(notice->outbox_bytes, 0);
}

void NoticeLedger::withdraw(const std::shared_ptr<Notice>& notice) {
  if (!(notice->state == Notice::State::kQueued)) return;
  forget(notice);
  notice->transfer.reset();
}

size_t NoticeLedger::count_lone() const {
  return static_cast<size_t>(std::count_if(pending_.begin(), pending_.end(),
                                           [](auto& entry) { return entry.second->is_lone(); }));
}

void NoticeLedger::end_all(const Status& status) {
  while (!pending_.empty()) {
    std::shared_ptr<Notice> notice = pending_.begin()->second;
    notice->status = status;
    forget(notice);
    notice->transfer.reset();
    notice->ended.notify_all();
  }
}

}  // namespace tcpx
