#include "engine/fence.h"

#include <algorithm>

#include "base/wait.h"
#include "engine/lane_set.h"
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

namespace {

constexpr Nanos kLookEvery = 20 * kMilli;  // whether a plugin hangs

}  // namespace

void Fence::ask(const std::shared_ptr<Peer>& peer, const LaneList& lanes) {
  missing_.fetch_add(lanes.size(), std::memory_order_relaxed);
  for (PeerLane* lane : lanes)
    (void)lane->loop().ask([lane, fence = shared_from_this(), peer, kept = lanes.kept()] {
      lane->fences().add(fence);
    });
}

Fence::Result Fence::await(Nanos deadline, const std::function<bool(Nanos now)>& hangs) {
  MutexLock lock(mu_);
  for (;;) {
    const Nanos look = std::min(deadline, now_ns() + kLookEvery);
    if (wait_until(changed_, lock, look, [this] { return holds(); })) return Result::kHolds;
    const Nanos now = now_ns();
    if (hangs(now)) return Result::kPluginHangs;
    if (now >= deadline) return Result::kNotYet;
  }
}

bool Fence::is_let_go_by(PeerLane& lane) const {
  return lane.fences().held_or_close(question_(lane), close_at_) == 0;
}

void Fence::let_go() {
  if (missing_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  MutexLock lock(mu_);
  changed_.notify_all();
}

}  // namespace tcpx
