// After these nobody touches a region's memory, reads a list of who may, or is between looking an
// id up and using what it named.
#include <algorithm>
#include <utility>

#include "engine/engine_regions.h"

namespace tcpx {

namespace {

constexpr Nanos kLongestFence = 10 * kSecond;

Status plugin_hangs() {
  return {
      TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE,
      "the net plugin hangs in a call and may still use the region's memory; do not free it, and "
      "call again to wait for the plugin"};
}

}  // namespace

// The id names nothing afterwards and nobody touches its memory. If it fails, the id names nothing
// all the same, and who asks again goes on waiting.
Status EngineRegions::retire(uint64_t region) {
  auto [close_at, give_up] = fence_times();
  if (Status status = table_.retire(region); !status) return status;
  std::vector<std::shared_ptr<Peer>> peers;
  peers_.all_with_lanes(&peers);
  // From here on nobody can resolve the id. What resolved it before is stopped in its loop.
  for (auto& peer : peers) peer->transfers().end_users_of(region, close_at);
  auto let_go = [region](PeerLane& lane) { return lane.let_go_of(region); };
  if (Status status = fence(peers, let_go, close_at, give_up); !status) return status;
  for (auto& peer : peers) peer->transfers().finish_users_of(region);
  // Nothing uses the memory any more, and it is about to be freed.
  auto forget = [region](PeerLane& lane) {
    lane.lane().forget_region(region);
    return size_t{0};
  };
  if (Status status = fence(peers, forget, kNever, give_up); !status) return status;
  // A lane that joined meanwhile may be between resolve and use.
  return pass_every_loop() ? Status() : plugin_hangs();
}

Status EngineRegions::revoke_for(const std::shared_ptr<Peer>& peer, uint64_t region) {
  FenceTimes times = fence_times();
  auto revoke = [region](PeerLane& lane) { return lane.revoke(region); };
  return fence({peer}, revoke, times.close_at, times.give_up);
}

// Somebody may be reading the list. A loop that hangs in a plugin keeps it for ever.
void EngineRegions::forget_grants(std::unique_ptr<const Grants> old) {
  if (old == nullptr) return;
  if (!pass_every_loop()) (void)old.release();
}

EngineRegions::FenceTimes EngineRegions::fence_times() const {
  Nanos now = now_ns(), patience = std::min(shared_.options.deadline, kLongestFence);
  return {now + std::min(Fence::kLongestHold, patience / 2), now + patience};
}

// All lanes of all these peers are asked before any is waited for.
Status EngineRegions::fence(const std::vector<std::shared_ptr<Peer>>& peers,
                            const Fence::Question& question, Nanos close_at, Nanos give_up) {
  auto asked = std::make_shared<Fence>(question, close_at);
  for (auto& peer : peers) asked->ask(peer, peer->lanes());
  auto hangs = [&](Nanos now) {
    return std::any_of(peers.begin(), peers.end(), [now](auto& peer) { return peer->hangs(now); });
  };
  switch (asked->await(give_up, hangs)) {
    case Fence::Result::kHolds: return {};
    case Fence::Result::kPluginHangs: return plugin_hangs();
    default:
      return Status(TCPX_DEADLINE, TCPX_BLAST_ENGINE,
                    "the region's memory was still in use at the deadline; do not free it, and "
                    "call again to go on waiting");
  }
}

// Whoever resolved something before has used it afterwards. False: a loop hangs in a plugin.
bool EngineRegions::pass_every_loop() {
  bool passed = true;
  for (auto& loop : shared_.loops) passed &= loop->run_exclusive([] {});
  for (auto& peer : peers_.all())
    for (PeerLane* lane : peer->lanes())
      if (lane->traits().own_loop()) passed &= lane->in_loop([] {});
  return passed;
}

}  // namespace tcpx
