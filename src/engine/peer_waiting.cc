// Callers that wait for a transfer: they make its progress themselves where they can.
#include <algorithm>
#include <thread>

#include "base/wait.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

// From here on sending takes longer than the two system calls that keep the loop's thread asleep.
constexpr uint64_t kLongPost = 64u << 10;
// How long a poll stays in the loop for a transfer that takes at least so long, and when the end of
// a shorter one is due; how long that may be overdue by the rate that the lane has shown.
constexpr Nanos kStay = 200 * kMicro, kWorthSleeping = 500 * kMicro;
constexpr Nanos kStayForTheEnd = 10 * kMicro, kEndOverdue = 50 * kMicro;
// Who asks for the same transfer again this soon, and for no other in between, does nothing else;
// how long such a poll stays.
constexpr Nanos kRightBack = 10 * kMicro, kStayOfWhoWaits = 20 * kMicro;
constexpr double kSlowRate = 1;  // bytes per ns

}  // namespace

// A caller makes the progress of the lane that carries its transfer, or of the first one.
PeerLane* Peer::lane_to_drive_locked(const TransferState& transfer) const {
  if (transfer.home < lanes_.size() && lanes_[transfer.home] && lanes_[transfer.home]->open())
    return lanes_[transfer.home].get();
  for (auto& lane : lanes_)
    if (lane && lane->open()) return lane.get();
  return nullptr;
}

void Peer::poll(TransferState& transfer) {
  PeerLane* lane = nullptr;
  Nanos now = now_ns();
  Outlook outlook = Outlook::kUnknown;
  bool right_back = false;
  LanesKept kept;
  {
    std::lock_guard lock(mu);
    if (!transfer.live) return;
    kept = lanes_.keep();
    right_back =
        last_polled_ == &transfer && now - polled_at_.load(std::memory_order_relaxed) < kRightBack;
    last_polled_ = &transfer;
    lane = lane_to_drive_locked(transfer);
    if (lane != nullptr) outlook = outlook_locked(transfer, *lane, now);
    if (outlook == Outlook::kWorthSleeping) drives_locked(transfer, lane->loop());
  }
  if (lane == nullptr) return;
  auto ended = [&] { return !transfer.in_progress(); };
  switch (outlook) {
    case Outlook::kEndsNow:
      lane->loop().poll_until(ended, now + kStayForTheEnd, Loop::Idle::kSpins);
      break;
    case Outlook::kWorthSleeping:
      // The loop's thread has it, or the poller's core had been taken from it: to fight for the
      // loop would only take time from who makes the progress.
      if (!lane->loop().poll_until(ended, now + kStay, Loop::Idle::kSleeps))
        sleep_until_ended(transfer, now + kStay);
      transfer.drivers.fetch_sub(1);
      break;
    case Outlook::kNotOurs:
      // A thread of the lane's own does it all, and may need this core: polled without a pause, 1
      // MiB took 560 us on the net path and 310 when waited for. Asleep until the end instead of
      // this: WRITE the same, 4 KiB READ 50 us, so 25.
      std::this_thread::yield();
      break;
    case Outlook::kUnknown:
      // In and out of the loop for every few bytes: 1 MiB READ 166 us, with the stay 134.
      if (right_back)
        lane->loop().poll_until(ended, now + kStayOfWhoWaits, Loop::Idle::kSpins);
      else
        lane->loop().poll();
      break;
  }
  polled_at_.store(now_ns(), std::memory_order_relaxed);
}

// What a poll is worth staying for. The end, if it is due: whoever polls from Python comes back 2
// us later. And where loops outnumber the cores and the transfer is long, the progress, or a sleep
// until there is some to make, as in wait(): a poller that comes back at once keeps a core from
// those who have something to do, to the last chunk. Two cores, two lanes, 16 MiB polled without a
// pause: 3.4 ms while the last half millisecond was polled without a stay, 2.3 now, 2.2 waited for.
Peer::Outlook Peer::outlook_locked(const TransferState& t, const PeerLane& lane, Nanos now) const {
  bool crowded = crowded_locked(lane);
  if (lane.has_own_loop()) return crowded ? Outlook::kNotOurs : Outlook::kUnknown;
  size_t lanes = t.home == kAnyLane ? lanes_.size() : 1;
  double rate = lane.rate() * static_cast<double>(lanes);  // bytes per ns
  if (rate == 0 && t.plan.bytes >= kLongPost) return Outlook::kUnknown;
  if (rate == 0) rate = kSlowRate;
  auto whole = static_cast<Nanos>(static_cast<double>(t.plan.bytes) / rate);
  if (whole > kWorthSleeping && crowded) return Outlook::kWorthSleeping;
  Nanos due = t.posted_at + whole;
  bool ends_now = now > due - kStayForTheEnd && now < due + kEndOverdue;
  return ends_now ? Outlook::kEndsNow : Outlook::kUnknown;
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
      PeerLane* lane = lane_to_drive_locked(transfer);
      if (lane != nullptr && !lane->has_own_loop()) loop = &lane->loop();
      if (loop != nullptr) drives_locked(transfer, *loop);
    }
    bool drove = loop != nullptr && loop->drive_until(stop, deadline);
    if (loop != nullptr) transfer.drivers.fetch_sub(1);
    if (drove) continue;
    // Someone else makes the progress, or there is no lane yet. Look again from time to time:
    // whoever drives may stop driving.
    sleep_until_ended(transfer, std::min(deadline, now_ns() + 20 * kMilli));
  }
}

// A caller is about to wait for the transfer in this loop.
void Peer::drives_locked(TransferState& transfer, Loop& loop) {
  bool alone = transfer.drivers.fetch_add(1) == 0;
  transfer.driven_apart = !alone && (transfer.driven_apart || transfer.driving != &loop);
  transfer.driving = &loop;
}

void Peer::nudge_drivers_locked(const TransferState& transfer) const {
  if (transfer.driven_apart)
    for (auto& loop : shared_.loops) loop->nudge();
  else if (transfer.driving != nullptr)
    transfer.driving->nudge();
}

void Peer::sleep_until_ended(TransferState& transfer, Nanos until) {
  std::unique_lock<std::mutex> lock(mu);
  ++transfer.waiters;
  wait_until(transfer.ended, lock, until, [&] { return !transfer.in_progress(); });
  --transfer.waiters;
}

}  // namespace tcpx
