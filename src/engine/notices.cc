#include "engine/notices.h"

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

// What a queued notification takes beside its bytes.
constexpr uint64_t kNoticeOverhead = 256;

}  // namespace

Status Notices::refused() {
  return transfer_error(TCPX_LIMIT,
                        "the peer does not take the notification: it is longer than its "
                        "max_notify_bytes");
}

void Notices::queue(PeerLock& lock, const std::shared_ptr<Notice>& notice) {
  lock->notices.queue(notice);
  if (PeerLane* lane = lock.lightest_lane()) lane->wake();
}

void Notices::withdraw(PeerLock& lock, const std::shared_ptr<Notice>& notice) {
  lock->notices.withdraw(notice);
  lock.tell_changed();
}

Status Notices::notify(std::shared_ptr<Notice> notice, Nanos deadline) {
  PeerLane* lane;
  LanesKept kept;
  const uint64_t limit = state_.shared.options.outbox_bytes;
  notice->outbox_bytes = notice->bytes.size() + kNoticeOverhead;
  {
    PeerLock lock(state_);
    auto fits = [&] { return lock->notices.outbox_takes(notice->outbox_bytes, limit); };
    lock.wait_changed(deadline, [&] { return lock->session.over() || fits(); });
    if (lock->session.over()) return lock->session.end_status();
    if (!fits())
      return peer_error(TCPX_LIMIT,
                        strf("{} bytes of notifications wait until the peer's application reads "
                             "(outbox_bytes is {}); this one was not sent",
                             lock->notices.outbox_held(), limit));
    queue(lock, notice);
    lock->notices.take_outbox(*notice);
    kept = lock->lanes.keep();
    lane = lock.lightest_lane();
  }
  if (lane != nullptr) lane->loop().try_exclusive([&] { lane->lane().flush(Peer::kPostBudget); });
  PeerLock lock(state_);
  if (lock.wait(notice->ended, deadline, [&] { return notice->state == Notice::State::kEnded; }))
    return notice->status;
  notice->left_alone = true;
  return peer_error(TCPX_DEADLINE,
                    "the peer did not confirm the notification in time; it may or "
                    "may not be delivered");
}

std::shared_ptr<Notice> Notices::next(uint32_t lane) {
  if (!may_have_more()) return nullptr;
  PeerLock lock(state_);
  if (!lock->session.up()) return nullptr;
  std::shared_ptr<Notice> notice = lock->notices.next(lane);
  if (notice != nullptr)
    state_.shared.counters.notifications_out.fetch_add(1, std::memory_order_relaxed);
  return notice;
}

void Notices::answered(uint64_t id, wire::NoticeVerdict verdict) {
  PeerLock lock(state_);
  auto [notice, held_back] = lock->notices.answered(id, verdict, now_ns());
  if (held_back)
    state_.shared.counters.notifications_held_back.fetch_add(1, std::memory_order_relaxed);
  if (notice == nullptr) return;
  std::shared_ptr<TransferState> transfer = std::move(notice->transfer);
  if (verdict == wire::NoticeVerdict::kNever) {
    notice->status = refused();
    if (notice->left_alone && transfer == nullptr)
      state_.shared.log.warn("peer {} ({}): {}", state_.id, escaped(lock->name),
                             notice->status.text());
  }
  notice->ended.notify_all();
  lock.tell_changed();
  if (transfer != nullptr) peer_.transfers().notice_ended(lock, transfer, *notice);
}

void Notices::end_pause(Nanos now) {
  PeerLock lock(state_);
  if (!lock->notices.end_pause(now)) return;
  if (PeerLane* lane = lock.lightest_lane()) lane->wake();
}

void Notices::end_all(PeerLock& lock) {
  const Status& status = lock->session.end_status();
  if (size_t lost = lock->notices.count_lone(); lost > 0)
    state_.shared.log.warn(
        "peer {} ({}): {} notifications that nobody waits for may not have arrived: {}", state_.id,
        escaped(lock->name), lost, status.text());
  lock->notices.end_all(status);
}

}  // namespace tcpx
