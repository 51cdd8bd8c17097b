// Callers that wait for a transfer: they make its progress themselves where they can.
#include <algorithm>
#include <thread>

#include "engine/peer.h"
#include "engine/transfers.h"

namespace tcpx {

namespace {

// From here on sending takes longer than the two system calls that keep the loop's thread asleep.
constexpr uint64_t kLongPost = 64u << 10;
// A transfer shorter than this stays on one lane where another lane would have to take its core
// from the first one, or from the peer. Two cores, 1 MiB: one lane 6.9 GB/s, two lanes 3.5; 8 MiB:
// one lane 6.3, two lanes 8.3. At half of this 4 MiB were on the edge and went either way from one
// run to the next, 5 to 9 GB/s.
constexpr Nanos kWorthAnotherLane = 1000 * kMicro;
// How long a poll stays in the loop for a transfer that takes at least so long, and when the end of
// a shorter one is due; how long that may be overdue by the rate that the lane has shown.
constexpr Nanos kStay = 200 * kMicro, kWorthSleeping = 500 * kMicro;
constexpr Nanos kStayForTheEnd = 10 * kMicro, kEndOverdue = 50 * kMicro;
// Who asks for the same transfer again this soon, and for no other in between, does nothing else;
// how long such a poll stays.
constexpr Nanos kRightBack = 10 * kMicro, kStayOfWhoWaits = 20 * kMicro;
constexpr double kSlowRate = 1;  // bytes per ns

}  // namespace

// Lanes on different interfaces always add up. Lanes on one interface add cores, if there are any:
// with more loops at work than may spin, they and the peer's take turns on the same ones.
bool Transfers::stays_on_one_lane(PeerLock& lock, const TransferState& transfer,
                                  const PeerLane& first) const {
  if (transfer.plan.chunks.size() < 2 || !shared_.options.adaptive_striping) return false;
  if (!crowded(lock, first)) return false;
  for (auto& lane : lock->lanes)
    if (lane && lane->open() && lane->rail() != first.rail()) return false;
  double rate = first.rate();  // bytes per ns
  // Parts too small to tell a rate (128 KiB in two) would never show one if they were spread.
  if (rate == 0) return transfer.plan.bytes <= peer_.identity().chunk_bytes;
  // For lanes that poll while anything is under way no length makes up for it where the peer takes
  // its cores from the same two: four lanes had 0.64 of one lane's rate at 16 MiB and 0.9 at 512.
  // Between hosts a single connection may be limited by the network.
  if (first.polls() && first.peer_is_here() && shared_.max_spinning == 1) return true;
  return static_cast<double>(transfer.plan.bytes) < rate * kWorthAnotherLane;
}

// Whether the loops at work for this peer, if all its lanes are, outnumber those that may spin.
bool Transfers::crowded(PeerLock& lock, const PeerLane& lane) const {
  size_t loops = lane.has_own_loop() ? lock->lanes.size() : shared_.loops.size();
  return shared_.crowded_by(std::min(lock->lanes.size(), loops));
}

// A caller makes the progress of the lane that carries its transfer, or of the first one.
PeerLane* Transfers::lane_to_drive(PeerLock& lock, const TransferState& transfer) const {
  const LaneBits open = lock->scheduler.open_lanes();
  LaneBits first = (open & transfer.lanes).empty() ? open : open & transfer.lanes;
  return first.empty() ? nullptr : lock.open_lane(first.take_first());
}

void Transfers::poll(TransferState& transfer) {
  PeerLane* lane = nullptr;
  Nanos now = now_ns();
  Outlook prospect = Outlook::kUnknown;
  bool right_back = false;
  LanesKept kept;
  {
    PeerLock lock(state_);
    if (!transfer.live()) return;
    kept = lock->lanes.keep();
    right_back =
        last_polled_ == &transfer && now - polled_at_.load(std::memory_order_relaxed) < kRightBack;
    last_polled_ = &transfer;
    lane = lane_to_drive(lock, transfer);
    if (lane != nullptr) prospect = outlook(lock, transfer, *lane, now);
    if (prospect == Outlook::kWorthSleeping) drives(lock, transfer, lane->loop());
  }
  if (lane == nullptr) return;
  auto ended = [&] { return !transfer.in_progress(); };
  switch (prospect) {
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
Transfers::Outlook Transfers::outlook(PeerLock& lock, const TransferState& t, const PeerLane& lane,
                                      Nanos now) const {
  const bool scarce = crowded(lock, lane);
  if (lane.has_own_loop()) return scarce ? Outlook::kNotOurs : Outlook::kUnknown;
  size_t lanes = std::min<size_t>(t.lanes.count(), lock->lanes.size());
  double rate = lane.rate() * static_cast<double>(lanes);  // bytes per ns
  if (rate == 0 && t.plan.bytes >= kLongPost) return Outlook::kUnknown;
  if (rate == 0) rate = kSlowRate;
  auto whole = static_cast<Nanos>(static_cast<double>(t.plan.bytes) / rate);
  if (whole > kWorthSleeping && scarce) return Outlook::kWorthSleeping;
  Nanos due = t.posted_at + whole;
  bool ends_now = now > due - kStayForTheEnd && now < due + kEndOverdue;
  return ends_now ? Outlook::kEndsNow : Outlook::kUnknown;
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
      PeerLane* lane = lane_to_drive(lock, transfer);
      if (lane != nullptr && !lane->has_own_loop()) loop = &lane->loop();
      if (loop != nullptr) drives(lock, transfer, *loop);
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
void Transfers::drives(PeerLock&, TransferState& transfer, Loop& loop) {
  bool alone = transfer.drivers.fetch_add(1) == 0;
  transfer.driven_apart = !alone && (transfer.driven_apart || transfer.driving != &loop);
  transfer.driving = &loop;
}

void Transfers::nudge_drivers(const TransferState& transfer) const {
  if (transfer.driven_apart)
    for (auto& loop : shared_.loops) loop->nudge();
  else if (transfer.driving != nullptr)
    transfer.driving->nudge();
}

void Transfers::sleep_until_ended(TransferState& transfer, Nanos until) {
  PeerLock lock(state_);
  ++transfer.waiters;
  lock.wait(transfer.ended, until, [&] { return !transfer.in_progress(); });
  --transfer.waiters;
}

}  // namespace tcpx
