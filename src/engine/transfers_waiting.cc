// Callers that wait for a transfer: they make its progress themselves where they can.
#include <algorithm>
#include <thread>

#include "engine/peer.h"
#include "engine/transfers.h"
#include "path/tuning.h"

namespace tcpx {

// A caller makes the progress of the first lane that carries its transfer. Null: of none, or it has
// a thread of its own for that. Else the caller is one of the transfer's drivers.
Loop* Transfers::loop_to_drive(PeerLock& lock, TransferState& transfer) const {
  const LaneBits open = lock->scheduler.open_lanes(), carry = open & transfer.lanes;
  LaneBits first = carry.empty() ? open : carry;
  PeerLane* lane = first.empty() ? nullptr : lock.open_lane(first.take_first());
  if (lane == nullptr || !lane->traits().caller_may_drive) return nullptr;
  Loop& loop = lane->loop();
  bool alone = transfer.drivers.fetch_add(1) == 0;
  transfer.driven_apart = !alone && (transfer.driven_apart || transfer.driving != &loop);
  transfer.driving = &loop;
  return &loop;
}

// A look, or a short wait if the caller comes right back.
void Transfers::poll(TransferState& transfer) {
  Loop* loop = nullptr;
  Nanos now = now_ns();
  bool right_back = false;
  LanesKept kept;
  {
    PeerLock lock(state_);
    if (!transfer.live()) return;
    kept = lock->lanes.keep();
    right_back = last_polled_ == &transfer &&
                 now - polled_at_.load(std::memory_order_relaxed) < tuning::kRightBack;
    last_polled_ = &transfer;
    loop = loop_to_drive(lock, transfer);
  }
  bool drove = false;
  if (loop != nullptr) {
    auto ended = [&] { return !transfer.in_progress(); };
    drove = loop->drive(ended, right_back ? now + tuning::kStay : now, Loop::Caller::kPolls);
    transfer.drivers.fetch_sub(1);
  }
  // Another thread makes the progress, and may need this core.
  if (!drove && right_back) std::this_thread::yield();
  polled_at_.store(now_ns(), std::memory_order_relaxed);
}

void Transfers::wait(TransferState& transfer, Nanos deadline) {
  auto stop = [&] { return !transfer.in_progress(); };
  while (!stop()) {
    Nanos now = now_ns();
    if (now >= deadline) return;
    Loop* loop = nullptr;
    LanesKept kept;
    {
      PeerLock lock(state_);
      kept = lock->lanes.keep();
      loop = loop_to_drive(lock, transfer);
    }
    bool drove = loop != nullptr && loop->drive(stop, deadline, Loop::Caller::kWaits);
    if (loop != nullptr) transfer.drivers.fetch_sub(1);
    if (drove) continue;
    // Someone else makes the progress, or there is no lane yet. Look again from time to time:
    // whoever drives may stop driving.
    sleep_until_ended(transfer, std::min(deadline, now_ns() + tuning::kTryToDriveEvery));
  }
}

void Transfers::nudge_drivers(const TransferState& transfer) const {
  if (transfer.drivers.load() == 0) return;
  if (transfer.driven_apart)
    for (auto& loop : shared_.loops) loop->nudge();
  else
    transfer.driving->nudge();
}

void Transfers::sleep_until_ended(TransferState& transfer, Nanos until) {
  PeerLock lock(state_);
  ++transfer.waiters;
  lock.wait(transfer.ended, until, [&] { return !transfer.in_progress(); });
  --transfer.waiters;
}

}  // namespace tcpx
