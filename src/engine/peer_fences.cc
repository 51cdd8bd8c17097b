// Ends of transfers that the caller asks for: when they return, nobody touches the memory any more.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/wait.h"
#include "engine/peer.h"

namespace tcpx {

// After this no lane touches the transfer's local memory, except placings that cannot be called
// back; those are waited for here. A lane that does not let go in time is closed. False: something
// still touched it at the end.
bool Peer::stop(const std::shared_ptr<TransferState>& transfer, uint64_t post) {
  LaneList all = lanes();
  Nanos give_up = now_ns() + 10 * kSecond;
  for (;;) {
    size_t moving = 0;
    for (PeerLane* lane : all) {
      auto held = std::make_shared<size_t>(0);
      bool ran = lane->in_loop([lane, held, transfer, post, keep = shared_from_this()] {
        *held = lane->stop(*transfer, post);
        if (*held > 0) lane->close_if_stuck();
      });
      if (!ran) return false;
      moving += *held;
    }
    if (moving == 0) return true;
    if (now_ns() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Local fence now, no waiting for the peer. Of this post, or of the present one (0).
void Peer::end_now(const std::shared_ptr<TransferState>& transfer, const Status& status,
                   uint64_t post) {
  uint64_t id;
  {
    std::lock_guard lock(mu);
    if (!transfer->live || (post != 0 && transfer->id != post)) return;
    id = transfer->id;
    transfer->ending = true;
    if (transfer->queued) std::erase(run_queue_, transfer);
    transfer->queued = false;
  }
  bool let_go = stop(transfer, id);
  std::lock_guard lock(mu);
  if (!transfer->live || transfer->id != id) return;
  transfer->held |= !let_go;
  if (transfer->status.ok()) transfer->status = status;
  finish_locked(*transfer, transfer->status.code());
}

Status Peer::cancel(const std::shared_ptr<TransferState>& transfer, Nanos deadline) {
  uint64_t id;
  bool live;
  {
    std::lock_guard lock(mu);
    id = transfer->id;
    live = transfer->live;
    if (live) {
      transfer->ending = true;
      if (transfer->queued) std::erase(run_queue_, transfer);
      transfer->queued = false;
    }
  }
  if (live) cancel_live(transfer, id, deadline);
  return await_loose(*transfer, id, deadline);
}

void Peer::cancel_live(const std::shared_ptr<TransferState>& transfer, uint64_t id,
                       Nanos deadline) {
  bool let_go = stop(transfer, id);
  {
    // WRITE: what is out lands or is refused before its answer comes, and a notification behind it
    // is delivered or not. READ: nothing to wait for.
    // It may have ended meanwhile, and been posted again: that post is none of ours.
    std::unique_lock<std::mutex> lock(mu);
    if (transfer->id == id) transfer->held |= !let_go;
    ++transfer->waiters;
    if (transfer->plan.op == TCPX_WRITE && !transfer->held)
      wait_until(transfer->ended, lock, deadline, [&] {
        return !transfer->live || transfer->id != id || state_ == State::kEnded ||
               (transfer->in_flight == 0 && !transfer->notice_behind);
      });
    --transfer->waiters;
  }
  end_now(transfer, transfer_error(TCPX_CANCELLED, "cancelled by the caller"), id);
}

// ---- what may still land at the peer --------------------------------------------------------

// One that was loose has been answered, or its lane is closed at the peer.
void Peer::loose_one_known_locked(TransferState& t) {
  if (t.loose > 0 && --t.loose == 0 && t.waiters > 0) changed_.notify_all();
}

// The end of the session leaves what is loose unknown for ever.
Status Peer::await_loose(TransferState& t, uint64_t post, Nanos deadline) {
  std::unique_lock<std::mutex> lock(mu);
  if (Status status = let_go_locked(t); !status) return status;
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

// A fence cannot hold against a thread in somebody else's code.
Status Peer::let_go_locked(const TransferState& transfer) {
  if (!transfer.held) return {};
  return transfer_error(TCPX_PATH_UNAVAILABLE,
                        "the net plugin hangs in a call and may still use "
                        "the local memory; do not free it");
}

void Peer::release(const std::shared_ptr<TransferState>& transfer) {
  end_now(transfer, transfer_error(TCPX_CANCELLED, "released while in progress"));
}

void Peer::revoke_local(uint64_t region) {
  std::vector<std::shared_ptr<TransferState>> hit;
  {
    std::lock_guard lock(mu);
    for (auto& transfer : live_)
      if (transfer->plan.uses(region)) hit.push_back(transfer);
  }
  for (auto& transfer : hit)
    end_now(transfer, transfer_error(TCPX_REGION_REVOKED,
                                     strf("local region {:#x} was deregistered", region)));
}

Peer::Hold Peer::revoke_remote(uint64_t region) {
  Hold worst = Hold::kNone;
  for (PeerLane* lane : lanes()) worst = std::max(worst, held_by(*lane, region));
  return worst;
}

// Whether frames or chunks of the lane still touch the region.
Peer::Hold Peer::held_by(PeerLane& lane, uint64_t region) {
  auto held = std::make_shared<size_t>(0);
  bool ran = lane.in_loop([lane = &lane, held, region, keep = shared_from_this()] {
    *held = lane->revoke(region);
    if (*held > 0) lane->close_if_stuck();
  });
  if (!ran) return lane.loop().hangs(now_ns()) ? Hold::kForEver : Hold::kMoving;
  return *held > 0 ? Hold::kMoving : Hold::kNone;
}

void Peer::forget_memory(const void* base, uint64_t length) {
  for (PeerLane* lane : lanes())
    if (lane->has_own_loop())
      lane->in_loop([lane, base, length, keep = shared_from_this()] {
        lane->lane().forget_memory(base, length);
      });
}

}  // namespace tcpx
