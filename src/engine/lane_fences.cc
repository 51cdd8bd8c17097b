#include "engine/lane_fences.h"

#include <algorithm>
#include <utility>

#include "engine/fence.h"

namespace tcpx {

namespace {

constexpr Nanos kFencePatience = 200 * kMilli;  // with what does not move

// More than who fences at once has callers: then adding one needs no memory.
constexpr size_t kFencesAtOnce = 32;

}  // namespace

LaneFences::LaneFences(PeerLane& lane, LaneCore& core) : lane_(lane), core_(core) {
  fences_.reserve(kFencesAtOnce);
}

void LaneFences::add(const std::shared_ptr<Fence>& fence) noexcept {
  core_.assert_inside();
  bool kept = false;
  core_.or_close([&] {
    fences_.push_back(fence);
    kept = true;
    look();
  });
  if (!kept) fence->let_go();  // it has closed the lane, which is one too
}

// In every round, as long as there are any.
void LaneFences::look() noexcept {
  for (size_t i = 0; i < fences_.size();) {
    std::shared_ptr<Fence> fence = fences_[i];
    bool let_go = false;
    core_.or_close([&] { let_go = fence->is_let_go_by(lane_); });
    // Where that closed the lane they are gone from here: it has told them.
    if (i >= fences_.size() || fences_[i] != fence) return;
    // One that is closed holds moves alone, and is not looked at again when they are over: also if
    // it had no memory to find that out.
    if (!core_.open() && core_.moves_running() == 0) let_go = true;
    if (!let_go) {
      ++i;
      continue;
    }
    fences_.erase(fences_.begin() + static_cast<std::ptrdiff_t>(i));
    fence->let_go();
  }
  if (!fences_.empty() && core_.open()) core_.make_waiting();
}

size_t LaneFences::held_or_close(size_t held, Nanos close_at) {
  core_.assert_inside();
  if (held == 0) return 0;
  // Closing a lane does not end moves, and they need none to come to their end.
  if (!core_.open() || held <= core_.moves_running()) return std::min(held, core_.moves_running());
  const Nanos now = now_ns();
  std::string why = core_.lane->stalled(now, kFencePatience);
  if (why.empty() && now >= close_at) why = "it was still in use when that had to be over";
  if (why.empty()) return held;
  core_.lane->close(lane_error(TCPX_PEER_TIMEOUT, "memory had to be given back: " + why));
  return core_.moves_running();
}

void LaneFences::let_go_all() {
  for (auto& fence : std::exchange(fences_, {})) fence->let_go();
}

}  // namespace tcpx
