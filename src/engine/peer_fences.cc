// Ends of transfers that the caller asks for: when they return, nobody touches the memory any more.
//
// What a path has begun and cannot call back (a plugin's request) is held: the transfer ends, and a
// fence returns, when it is through. While it moves it is waited for, for kLongestHold at most;
// after that, or when it stands still, the lane is closed, which is the last fence there is.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/wait.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

constexpr Nanos kLeastHold = 200 * kMilli;
constexpr Nanos kClosing = 300 * kMilli;  // of lanes, as long as no plugin hangs in it
constexpr Nanos kLookEvery = 20 * kMilli;
// Every question wakes a loop, which then spins for a while: the longer it has lasted, the more
// rarely it is asked.
constexpr Nanos kAskAgain = kMilli, kAskAgainAtMost = 20 * kMilli;
Nanos until_asked_again(Nanos since) {
  return std::clamp((now_ns() - since) / 4, kAskAgain, kAskAgainAtMost);
}

// When lanes that still hold memory are closed, for who has until `deadline`: so that there is time
// for closing them. And until when they are waited for.
Nanos fence_end(Nanos deadline) {
  Nanos now = now_ns();
  return now + std::clamp(deadline - now - kClosing, kLeastHold, Peer::kLongestHold);
}
Nanos closed_by(Nanos close_at, Nanos deadline) {
  return std::max(deadline, deadline_after(close_at, kClosing));
}

}  // namespace

Answers Peer::ask_lanes(const std::function<size_t(PeerLane&)>& question) {
  LaneList all = lanes();
  auto answers = std::make_shared<LaneAnswers>(all.size());
  for (PeerLane* lane : all)
    (void)lane->loop().ask([lane, answers, question, keep = shared_from_this(), kept = all.kept()] {
      size_t held = 0;  // of a lane that it closes
      lane->or_close([&] { held = question(*lane); });
      answers->add(held);
    });
  return answers;
}

Answers Peer::ask_stop(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                       Nanos close_at) {
  return ask_lanes([transfer, post, close_at](PeerLane& lane) {
    return lane.held_or_close(lane.stop(*transfer, post), close_at);
  });
}

// After this no lane touches the transfer's local memory.
Peer::Fence Peer::stop(const std::shared_ptr<TransferState>& transfer, uint64_t post,
                       Nanos close_at, Nanos deadline) {
  for (const Nanos since = now_ns();;) {
    Answers answers = ask_stop(transfer, post, close_at);
    while (!answers->await(std::min(deadline, now_ns() + kLookEvery))) {
      Nanos now = now_ns();
      if (hangs(now)) return Fence::kPluginHangs;
      if (now >= deadline) return Fence::kNotYet;
    }
    if (answers->all_let_go()) return Fence::kHolds;
    if (now_ns() >= deadline) return Fence::kNotYet;
    std::unique_lock<std::mutex> lock(mu);
    ++transfer->waiters;
    Nanos again = std::min(deadline, now_ns() + until_asked_again(since));
    wait_until(transfer->ended, lock, again, [&] { return !transfer->live; });
    --transfer->waiters;
  }
}

// Of a live transfer: no more chunks. It ends when lanes have let go of its memory; the service
// thread sees to that, and who waits for it may do so too.
void Peer::begin_end_locked(const std::shared_ptr<TransferState>& transfer, const Status& status,
                            Nanos close_at) {
  TransferState& t = *transfer;
  if (t.status.ok()) t.status = Status(status);  // wholly or not at all
  t.ending = true;
  if (t.queued) std::erase(run_queue_, transfer);
  t.queued = false;
  t.close_at = std::min(t.close_at, close_at);
}

void Peer::finish_stopped_locked(TransferState& t, bool held) {
  t.held |= held;
  finish_locked(t, t.status.code());
}

// Local fence now, no waiting for the peer. Of this post, or of the present one (0).
void Peer::end_now(const std::shared_ptr<TransferState>& transfer, const Status& status,
                   uint64_t post) {
  uint64_t id;
  Nanos close_at;
  {
    std::lock_guard lock(mu);
    if (!transfer->live || (post != 0 && transfer->id != post)) return;
    id = transfer->id;
    begin_end_locked(transfer, status, now_ns() + kLongestHold);
    close_at = transfer->close_at;
  }
  // Its end may have begun long ago: lanes get the time to answer all the same.
  Fence fence = stop(transfer, id, close_at, std::max(close_at, now_ns()) + kClosing);
  std::lock_guard lock(mu);
  if (!transfer->live || transfer->id != id || fence == Fence::kNotYet) return;
  finish_stopped_locked(*transfer, fence == Fence::kPluginHangs);
}

// Transfers whose end was begun and that nobody may be waiting for. Lanes are asked and not waited
// for: one that has not answered is looked at the next time.
void Peer::advance_ends() {
  struct Ending {
    std::shared_ptr<TransferState> transfer;
    uint64_t id;
    Nanos close_at;
  };
  std::vector<Ending> to_ask;
  {
    std::lock_guard lock(mu);
    for (size_t i = live_.size(); i-- > 0;) {  // an end puts the last one here
      TransferState& t = *live_[i];
      if (t.close_at == kNever) continue;
      if (t.asked != nullptr && t.asked->all_let_go())
        finish_stopped_locked(t, false);
      else if (t.asked == nullptr || t.asked->complete())
        to_ask.push_back({live_[i], t.id, t.close_at});
    }
  }
  for (auto& [transfer, id, close_at] : to_ask) {
    Answers answers = ask_stop(transfer, id, close_at);
    std::lock_guard lock(mu);
    if (!transfer->live || transfer->id != id) continue;
    transfer->asked = answers;
    if (answers->all_let_go()) finish_stopped_locked(*transfer, false);
  }
}

Status Peer::cancel(const std::shared_ptr<TransferState>& transfer, Nanos deadline) {
  uint64_t id;
  bool live, held;
  {
    std::lock_guard lock(mu);
    id = transfer->id;
    live = transfer->live;
    held = transfer->held;
    if (live) {
      transfer->ending = true;
      if (transfer->queued) std::erase(run_queue_, transfer);
      transfer->queued = false;
    }
  }
  if (live)
    cancel_live_or_leave(transfer, id, deadline);
  else if (held)
    look_again(transfer, id, deadline);
  return await_loose(*transfer, id, deadline);
}

// Where memory is out, its end is left to the service thread.
void Peer::cancel_live_or_leave(const std::shared_ptr<TransferState>& transfer, uint64_t id,
                                Nanos deadline) {
  try {
    cancel_live(transfer, id, deadline);
  } catch (...) {
    std::lock_guard lock(mu);
    if (transfer->live && transfer->id == id)
      begin_end_locked(transfer, transfer_error(TCPX_CANCELLED, ""), now_ns() + kLongestHold);
    throw;
  }
}

void Peer::cancel_live(const std::shared_ptr<TransferState>& transfer, uint64_t id,
                       Nanos deadline) {
  Status cancelled = transfer_error(TCPX_CANCELLED, "cancelled by the caller");
  Nanos close_at = fence_end(deadline);
  Fence fence = stop(transfer, id, close_at, closed_by(close_at, deadline));
  {
    // WRITE: what is out lands or is refused before its answer comes, and a notification behind it
    // is delivered or not. READ: nothing to wait for.
    // It may have ended meanwhile, and been posted again: that post is none of ours.
    std::unique_lock<std::mutex> lock(mu);
    bool ours = transfer->live && transfer->id == id;
    if (ours && fence == Fence::kNotYet) return begin_end_locked(transfer, cancelled, close_at);
    if (ours) transfer->held |= fence == Fence::kPluginHangs;
    ++transfer->waiters;
    if (transfer->plan.op == TCPX_WRITE && !transfer->held)
      wait_until(transfer->ended, lock, deadline, [&] {
        return !transfer->live || transfer->id != id || state_ == State::kEnded ||
               (transfer->in_flight == 0 && !transfer->notice_behind);
      });
    --transfer->waiters;
  }
  end_now(transfer, cancelled, id);
}

// It has ended, but a plugin hung then and may have come back.
void Peer::look_again(const std::shared_ptr<TransferState>& transfer, uint64_t id, Nanos deadline) {
  Nanos close_at = fence_end(deadline);
  if (stop(transfer, id, close_at, closed_by(close_at, deadline)) != Fence::kHolds) return;
  std::lock_guard lock(mu);
  if (transfer->id == id) transfer->held = false;
}

// ---- what may still land at the peer --------------------------------------------------------

// One that was loose has been answered, or its lane is closed at the peer.
void Peer::loose_one_known_locked(TransferState& t) {
  if (t.loose > 0 && --t.loose == 0 && t.waiters > 0) changed_.notify_all();
}

// The end of the session leaves what is loose unknown for ever.
Status Peer::await_loose(TransferState& t, uint64_t post, Nanos deadline) {
  std::unique_lock<std::mutex> lock(mu);
  if (Status status = let_go_locked(t, post); !status) return status;
  auto known = [&] { return t.loose == 0 || t.id != post; };
  ++t.waiters;
  wait_until(changed_, lock, deadline, [&] { return known() || state_ == State::kEnded; });
  --t.waiters;
  if (known()) return {};
  if (state_ == State::kEnded) return end_status_;
  return transfer_error(
      TCPX_DEADLINE, strf("local memory is safe, but the peer has not confirmed {} chunks, which "
                          "may still land in its memory; call tcpx_cancel again to wait for it",
                          t.loose));
}

// A fence cannot hold against a thread in somebody else's code: a plugin's, or the kernel's (in a
// page fault of that memory that nobody answers).
Status Peer::let_go_locked(const TransferState& transfer, uint64_t post) {
  if (transfer.id != post || (!transfer.held && !transfer.live)) return {};
  const char* who = transfer.held ? "the net plugin is" : "a thread of the engine is still";
  return transfer_error(TCPX_PATH_UNAVAILABLE,
                        strf("{} in a call and may still use the local memory; do not free it: "
                             "cancel again, or deregister it, to wait for that",
                             who));
}

// A fence that has no way to say that it failed. Where it cannot be set for want of memory, the
// peer is ended instead, which is one too; and where a thread of ours does not come back from the
// kernel it is waited for as long as that takes. (A plugin that hangs ends the transfer.)
void Peer::release(const std::shared_ptr<TransferState>& transfer) noexcept {
  if (!quietly(
          [&] { end_now(transfer, transfer_error(TCPX_CANCELLED, "released while in progress")); }))
    fail(TCPX_NO_MEMORY);
  quietly([&] { sleep_until_ended(*transfer, kNever); });
}

void Peer::end_users_of(uint64_t region, Nanos close_at) {
  {
    std::lock_guard lock(mu);
    Status revoked =
        transfer_error(TCPX_REGION_REVOKED, strf("local region {:#x} was deregistered", region));
    for (auto& transfer : live_)
      if (transfer->plan.uses(region)) begin_end_locked(transfer, revoked, close_at);
  }
  advance_ends();
}

bool Peer::has_users_of(uint64_t region) {
  std::lock_guard lock(mu);
  return std::any_of(live_.begin(), live_.end(),
                     [region](auto& transfer) { return transfer->plan.uses(region); });
}

Answers Peer::ask_revoke(uint64_t region, Nanos close_at, bool ours) {
  advance_ends();
  return ask_lanes([region, close_at, ours](PeerLane& lane) {
    size_t held = lane.revoke(region) + (ours ? lane.held_for_us(region) : 0);
    return lane.held_or_close(held, close_at);
  });
}

bool Peer::hangs(Nanos now) {
  for (PeerLane* lane : lanes())
    if (lane->has_own_loop() && !lane->is_shut() && lane->loop().hangs(now)) return true;
  return false;
}

Answers Peer::ask_forget(uint64_t region) {
  return ask_lanes([region](PeerLane& lane) {
    lane.lane().forget_region(region);
    return size_t{0};
  });
}

}  // namespace tcpx
