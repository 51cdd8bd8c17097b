// Callers that wait for a transfer: they make its progress themselves where they can.
#include <algorithm>
#include <thread>

#include "base/wait.h"
#include "engine/peer.h"
#include "path/tuning.h"

namespace tcpx {

// A caller makes the progress of the lane that carries its transfer, or of the first one. Null: of
// none, or it has a thread of its own for that. Else the caller is one of the transfer's drivers.
Loop* Peer::join_drivers_locked(TransferState& transfer) const {
  PeerLane* found = nullptr;
  if (transfer.home < lanes_.size() && lanes_[transfer.home] && lanes_[transfer.home]->open())
    found = lanes_[transfer.home].get();
  for (auto& lane : lanes_)
    if (found == nullptr && lane && lane->open()) found = lane.get();
  if (found == nullptr || found->has_own_loop()) return nullptr;
  Loop& loop = found->loop();
  bool alone = transfer.drivers.fetch_add(1) == 0;
  transfer.driven_apart = !alone && (transfer.driven_apart || transfer.driving != &loop);
  transfer.driving = &loop;
  return &loop;
}

// A look, or a short wait if the caller comes right back.
void Peer::poll(TransferState& transfer) {
  Loop* loop = nullptr;
  Nanos now = now_ns();
  bool right_back = false;
  LanesKept kept;
  {
    std::lock_guard lock(mu);
    if (!transfer.live) return;
    kept = lanes_.keep();
    right_back = last_polled_ == &transfer &&
                 now - polled_at_.load(std::memory_order_relaxed) < tuning::kRightBack;
    last_polled_ = &transfer;
    loop = join_drivers_locked(transfer);
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

void Peer::wait(TransferState& transfer, Nanos deadline) {
  auto stop = [&] { return !transfer.in_progress(); };
  while (!stop()) {
    Nanos now = now_ns();
    if (now >= deadline) return;
    Loop* loop = nullptr;
    LanesKept kept;
    {
      std::lock_guard lock(mu);
      kept = lanes_.keep();
      loop = join_drivers_locked(transfer);
    }
    bool drove = loop != nullptr && loop->drive(stop, deadline, Loop::Caller::kWaits);
    if (loop != nullptr) transfer.drivers.fetch_sub(1);
    if (drove) continue;
    // Someone else makes the progress, or there is no lane yet. Look again from time to time:
    // whoever drives may stop driving.
    sleep_until_ended(transfer, std::min(deadline, now_ns() + tuning::kTryToDriveEvery));
  }
}

void Peer::nudge_drivers_locked(const TransferState& transfer) const {
  if (transfer.drivers.load() == 0) return;
  if (transfer.driven_apart)
    for (auto& loop : shared_.loops) loop->nudge();
  else
    transfer.driving->nudge();
}

void Peer::sleep_until_ended(TransferState& transfer, Nanos until) {
  std::unique_lock<std::mutex> lock(mu);
  ++transfer.waiters;
  wait_until(transfer.ended, lock, until, [&] { return !transfer.in_progress(); });
  --transfer.waiters;
}

}  // namespace tcpx
