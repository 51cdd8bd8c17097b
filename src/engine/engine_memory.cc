// An engine's registered memory, and the fences around it.
#include <algorithm>
#include <utility>

#include "base/mutex.h"
#include "base/text.h"
#include "base/wait.h"
#include "engine/engine.h"

namespace tcpx {

namespace {

constexpr Nanos kLongestFence = 10 * kSecond;
constexpr Nanos kLongestResume = 500 * kMilli;

}  // namespace

Status EngineCore::register_memory(const RegionView& memory, uint64_t* region) {
  if (Status status = shared_.movers->admit(memory.base, memory.length, memory.place); !status)
    return status;
  return shared_.regions.add(memory, region);
}

Status EngineCore::deregister(uint64_t region) {
  if (shared_.regions.drop_suspended(region)) return {};
  if (Status status = retire_region(region); !status) return status;
  shared_.regions.recycle(region);
  return {};
}

Status EngineCore::suspend(uint64_t region) {
  if (Status status = retire_region(region); !status) return status;
  shared_.regions.suspend(region);
  return {};
}

// Peers are told, so that what they post from now on is not refused for nothing. One whose Welcome
// still named the epoch before is among them when the service thread has been passed.
Status EngineCore::resume(uint64_t region) {
  // Other memory may have come to the same addresses meanwhile.
  RegionView view;
  if (Status status = shared_.regions.describe_suspended(region, &view); !status) return status;
  if (Status status = shared_.movers->admit(view.base, view.length, view.place); !status)
    return status;
  if (Status status = shared_.regions.resume(region, &shared_.epoch); !status) return status;
  uint64_t epoch = shared_.epoch.load();
  Nanos give_up = now_ns() + kLongestResume;
  pass_service(give_up);
  std::vector<std::shared_ptr<Peer>> peers = all_peers();
  for (auto& peer : peers) peer->tell_epoch();
  for (auto& peer : peers) peer->await_epoch_heard(epoch, give_up);
  return {};
}

// Returns when the service thread is through with what it is doing now.
void EngineCore::pass_service(Nanos deadline) {
  struct Passed {
    Mutex mu;
    std::condition_variable changed;
    bool done TCPX_GUARDED_BY(mu) = false;
  };
  auto passed = std::make_shared<Passed>();
  shared_.defer([passed] {
    MutexLock lock(passed->mu);
    passed->done = true;
    passed->changed.notify_all();
  });
  MutexLock lock(passed->mu);
  wait_until(passed->changed, lock, deadline,
             [&]() TCPX_REQUIRES(passed->mu) { return passed->done; });
}

std::vector<std::shared_ptr<Peer>> EngineCore::all_peers() {
  std::vector<std::shared_ptr<Peer>> peers;
  MutexLock lock(mu_);
  for (auto& [id, peer] : peers_) peers.push_back(peer);
  return peers;
}

namespace {

Status plugin_hangs() {
  return {
      TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE,
      "the net plugin hangs in a call and may still use the region's memory; do not free it, and "
      "call again to wait for the plugin"};
}

}  // namespace

// The fence: afterwards the id names nothing and nobody touches its memory.
// If it fails, the id names nothing all the same, and who asks again goes on waiting.
Status EngineCore::retire_region(uint64_t region) {
  auto [close_at, give_up] = fence_times();
  if (Status status = shared_.regions.retire(region); !status) return status;
  std::vector<std::shared_ptr<Peer>> peers;
  {
    MutexLock lock(mu_);
    peers = held_peers_;
    for (auto& [id, peer] : peers_) peers.push_back(peer);
  }
  // From here on nobody can resolve the id. What resolved it before is stopped in its loop.
  for (auto& peer : peers) peer->transfers().end_users_of(region, close_at);
  auto let_go = [region](PeerLane& lane) {
    return lane.revoke(region) + lane.stop_users_of(region);
  };
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

// Whoever resolved something before has used it afterwards. False: a loop hangs in a plugin.
bool EngineCore::pass_every_loop() {
  bool passed = true;
  for (auto& loop : shared_.loops) passed &= loop->run_exclusive([] {});
  for (auto& peer : all_peers())
    for (PeerLane* lane : peer->lanes())
      if (lane->traits().own_loop()) passed &= lane->in_loop([] {});
  return passed;
}

EngineCore::FenceTimes EngineCore::fence_times() const {
  Nanos now = now_ns(), patience = std::min(shared_.options.deadline, kLongestFence);
  return {now + std::min(Fence::kLongestHold, patience / 2), now + patience};
}

// All lanes of all these peers are asked before any is waited for.
Status EngineCore::fence(const std::vector<std::shared_ptr<Peer>>& peers,
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

uint64_t EngineCore::longest_chunk(const Place& place) const {
  return std::min(shared_.movers->most_at_a_time(place), wire::kMaxChunkBytes);
}

Status EngineCore::describe_region(uint64_t region, wire::RegionDescription* out) {
  RegionView view;
  if (Status status = shared_.regions.describe(region, &view); !status) return status;
  *out = {uid_,
          region,
          view.length,
          view.access,
          static_cast<uint16_t>(view.place.kind),
          view.place.device,
          view.place.is_host() ? 0 : longest_chunk(view.place)};
  return {};
}

}  // namespace tcpx
