// Ends of transfers that the caller asks for: when they return, nobody touches the memory any more
// (fence.h).
#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "engine/peer.h"
#include "engine/transfers.h"

namespace tcpx {

namespace {

using Stage = TransferState::Stage;

constexpr Nanos kLeastHold = 200 * kMilli;
constexpr Nanos kClosing = 300 * kMilli;  // of lanes, as long as no plugin hangs in it

// When lanes that still hold memory are closed, for who has until `deadline`: so that there is time
// for closing them. And until when they are waited for.
Nanos fence_end(Nanos deadline) {
  Nanos now = now_ns();
  return now + std::clamp(deadline - now - kClosing, kLeastHold, Fence::kLongestHold);
}
Nanos closed_by(Nanos close_at, Nanos deadline) {
  return std::max(deadline, deadline_after(close_at, kClosing));
}

// A fence cannot hold against a thread in somebody else's code: a plugin's, or the kernel's (in a
// page fault of that memory that nobody answers).
Status let_go(const TransferState& transfer, uint64_t post) {
  if (transfer.id != post || (!transfer.held && !transfer.live())) return {};
  const char* who = transfer.held ? "the net plugin is in a call"
                                  : "a thread of the engine is in a call, or a copy under way,";
  return transfer_error(TCPX_PATH_UNAVAILABLE,
                        strf("{} and may still use the local memory; do not free it: "
                             "cancel again, or deregister it, to wait for that",
                             who));
}

}  // namespace

std::shared_ptr<Fence> Transfers::stop_fence(const std::shared_ptr<TransferState>& transfer,
                                             uint64_t post, Nanos close_at) {
  auto stop = [transfer, post](PeerLane& lane) { return lane.stop(*transfer, post); };
  auto fence = std::make_shared<Fence>(stop, close_at);
  fence->ask(peer_.shared_from_this(), peer_.lanes());
  return fence;
}

// After this no lane touches the transfer's local memory.
Fence::Result Transfers::stop(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                              Nanos close_at, Nanos deadline) {
  return stop_fence(transfer, post, close_at)->await(deadline, [this](Nanos now) {
    return peer_.hangs(now);
  });
}

// Local fence now, no waiting for the peer. Of this post, or of the present one (0).
void Transfers::end_now(const std::shared_ptr<TransferState>& transfer, const Status& status,
                        uint64_t post) {
  std::vector<Ending> endings;
  endings.reserve(1);
  {
    PeerLock lock(state_);
    if (!transfer->live() || (post != 0 && transfer->id != post)) return;
    begin_end(lock, *transfer, status, now_ns() + Fence::kLongestHold);
    endings.push_back({transfer, transfer->id, transfer->close_at});
  }
  await_ends(endings);
}

void Transfers::end_all_now(const Status& status) {
  std::vector<Ending> endings;
  {
    PeerLock lock(state_);
    endings.reserve(lock->live.size());
    const Nanos close_at = now_ns() + Fence::kLongestHold;
    for (auto& transfer : lock->live) {
      begin_end(lock, *transfer, status, close_at);
      endings.push_back({transfer, transfer->id, transfer->close_at});
    }
  }
  await_ends(endings);
}

// All are asked before the first is waited for, and all together have the time of one.
void Transfers::await_ends(std::vector<Ending>& endings) {
  Nanos give_up = now_ns();  // an end may have begun long ago: lanes get the time to answer
  for (Ending& ending : endings) {
    ending.fence = stop_fence(ending.transfer, ending.post, ending.close_at);
    give_up = std::max(give_up, ending.close_at);
  }
  give_up += kClosing;
  for (Ending& ending : endings) {
    TransferState& t = *ending.transfer;
    const Fence::Result fence =
        ending.fence->await(give_up, [this](Nanos now) { return peer_.hangs(now); });
    PeerLock lock(state_);
    if (!t.is_live_post(ending.post) || fence == Fence::Result::kNotYet) continue;
    t.held |= fence == Fence::Result::kPluginHangs;
    finish(lock, t, t.status.code());
  }
}

// Lanes are asked and not waited for: a fence that does not hold yet is looked at the next time.
void Transfers::advance_ends() {
  std::vector<Ending> to_ask;
  {
    PeerLock lock(state_);
    for (size_t i = lock->live.size(); i-- > 0;) {  // an end puts the last one here
      TransferState& t = *lock->live[i];
      if (t.close_at == kNever) continue;
      if (t.fence == nullptr)
        to_ask.push_back({lock->live[i], t.id, t.close_at});
      else if (t.fence->holds())
        finish(lock, t, t.status.code());
    }
  }
  for (auto& [transfer, post, close_at, fence] : to_ask) {
    fence = stop_fence(transfer, post, close_at);
    PeerLock lock(state_);
    if (!transfer->is_live_post(post)) continue;
    transfer->fence = fence;
    if (fence->holds()) finish(lock, *transfer, transfer->status.code());
  }
}

// It ends when lanes have let go of its memory: `advance_ends`.
void Transfers::expire_deadlines(Nanos now) {
  PeerLock lock(state_);
  for (auto& transfer : lock->live) {
    TransferState& t = *transfer;
    // One that has failed, and waits for what is still out, has a deadline like any other.
    if (t.deadline > now || t.close_at != kNever || t.stage == Stage::kCancelling) continue;
    begin_end(lock, t,
              transfer_error(TCPX_DEADLINE, strf("the transfer's deadline passed: {} of {} chunks "
                                                 "confirmed, {} in flight",
                                                 t.settled, t.plan.chunks.size(), t.in_flight)),
              now + Fence::kLongestHold);
  }
}

// ---- cancel and release ----------------------------------------------------------------------

Status Transfers::cancel(const std::shared_ptr<TransferState>& transfer, Nanos deadline) {
  uint64_t post;
  bool live, held;
  {
    PeerLock lock(state_);
    post = transfer->id;
    live = transfer->live();
    held = transfer->held;
    if (transfer->well()) transfer->stage.step(Stage::kCancelling);
    lock->scheduler.remove(*transfer);
  }
  try {
    if (live)
      cancel_live(transfer, post, deadline);
    else if (held)
      look_again(transfer, post, deadline);
  } catch (...) {  // where memory is out, its end is left to the service thread
    PeerLock lock(state_);
    if (transfer->is_live_post(post))
      begin_end(lock, *transfer, transfer_error(TCPX_CANCELLED, ""),
                now_ns() + Fence::kLongestHold);
    throw;
  }
  return await_loose(*transfer, post, deadline);
}

void Transfers::cancel_live(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                            Nanos deadline) {
  Status cancelled = transfer_error(TCPX_CANCELLED, "cancelled by the caller");
  Nanos close_at = fence_end(deadline);
  Fence::Result fence = stop(transfer, post, close_at, closed_by(close_at, deadline));
  {
    // WRITE: what is out lands or is refused before its answer comes, and a notification behind it
    // is delivered or not. READ: nothing to wait for.
    // It may have ended meanwhile, and been posted again: that post is none of ours.
    PeerLock lock(state_);
    TransferState& t = *transfer;
    bool ours = t.is_live_post(post);
    if (ours && fence == Fence::Result::kNotYet) return begin_end(lock, t, cancelled, close_at);
    if (ours) t.held |= fence == Fence::Result::kPluginHangs;
    ++t.waiters;
    if (t.plan.op == TCPX_WRITE && !t.held)
      lock.wait(t.ended, deadline, [&] {
        return !t.is_live_post(post) || lock->session.over() ||
               (t.in_flight == 0 && !t.notice_behind);
      });
    --t.waiters;
  }
  end_now(transfer, cancelled, post);
}

// It has ended, but a plugin hung then and may have come back.
void Transfers::look_again(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                           Nanos deadline) {
  Nanos close_at = fence_end(deadline);
  if (stop(transfer, post, close_at, closed_by(close_at, deadline)) != Fence::Result::kHolds)
    return;
  PeerLock lock(state_);
  if (transfer->id == post) transfer->held = false;
}

// Where it cannot be set for want of memory, the peer is ended instead, which is a fence too; and
// where a thread of ours does not come back from the kernel it is waited for as long as that takes.
// (A plugin that hangs ends the transfer.)
void Transfers::release(const std::shared_ptr<TransferState>& transfer) noexcept {
  {
    PeerLock lock(state_);
    transfer->released = true;
    if (transfer->waiters > 0) lock.tell_changed();  // a cancel that waits for answers
  }
  if (!quietly([&] {
        end_now(transfer, transfer_error(TCPX_CANCELLED, "released while in progress"), 0);
      }))
    peer_.ending().fail(TCPX_NO_MEMORY);
  quietly([&] { sleep_until_ended(*transfer, kNever); });
}

// ---- what may still land at the peer --------------------------------------------------------

// One that was loose has been answered, or its lane is closed at the peer.
void Transfers::loose_one_known(PeerLock& lock, TransferState& t) const {
  if (t.loose > 0 && --t.loose == 0 && t.waiters > 0) lock.tell_changed();
}

// The end of the session leaves what is loose unknown for ever.
Status Transfers::await_loose(TransferState& t, uint64_t post, Nanos deadline) {
  PeerLock lock(state_);
  if (Status status = let_go(t, post); !status) return status;
  auto known = [&] { return t.loose == 0 || t.id != post; };
  ++t.waiters;
  lock.wait_changed(deadline, [&] { return known() || t.released || lock->session.over(); });
  --t.waiters;
  if (known()) return {};
  if (lock->session.over()) return lock->session.end_status();
  if (t.released)
    return transfer_error(TCPX_CANCELLED,
                          strf("released by another thread; local memory is safe, but the peer has "
                               "not confirmed {} chunks, which may still land in its memory",
                               t.loose));
  return transfer_error(
      TCPX_DEADLINE, strf("local memory is safe, but the peer has not confirmed {} chunks, which "
                          "may still land in its memory; call tcpx_cancel again to wait for it",
                          t.loose));
}

// ---- memory that is deregistered --------------------------------------------------------------

void Transfers::end_users_of(uint64_t region, Nanos close_at) {
  PeerLock lock(state_);
  Status revoked =
      transfer_error(TCPX_REGION_REVOKED, strf("local region {:#x} was deregistered", region));
  for (auto& transfer : lock->live)
    if (transfer->plan.uses(region)) begin_end(lock, *transfer, revoked, close_at);
}

void Transfers::finish_users_of(uint64_t region) {
  PeerLock lock(state_);
  for (size_t i = lock->live.size(); i-- > 0;) {
    TransferState& t = *lock->live[i];
    if (t.plan.uses(region)) finish(lock, t, t.status.code());
  }
}

}  // namespace tcpx
