#include "engine/engine_regions.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/mutex.h"
#include "base/wait.h"

namespace tcpx {

namespace {

constexpr Nanos kLongestResume = 500 * kMilli;

}  // namespace

// ---- registered ------------------------------------------------------------------------------

Status EngineRegions::register_memory(const RegionView& memory, uint64_t* region) {
  if (Status status = shared_.movers->admit(memory.base, memory.length, memory.place); !status)
    return status;
  return table_.add(memory, region);
}

Status EngineRegions::register_for(const RegionView& memory, std::span<const uint64_t> peers,
                                   uint64_t* region) {
  if (Status status = shared_.movers->admit(memory.base, memory.length, memory.place); !status)
    return status;
  auto grants = std::make_unique<Grants>(peers.begin(), peers.end());
  std::shared_ptr<Peer> found;
  for (uint64_t peer : peers)
    if (Status status = peers_.find(peer, &found); !status) return status;
  std::sort(grants->begin(), grants->end());
  grants->erase(std::unique(grants->begin(), grants->end()), grants->end());
  return table_.add(memory, region, std::move(grants));
}

uint64_t EngineRegions::longest_chunk(const Place& place) const {
  return std::min(shared_.movers->most_at_a_time(place), wire::kMaxChunkBytes);
}

Status EngineRegions::describe(uint64_t region, wire::RegionDescription* out) const {
  RegionView view;
  if (Status status = table_.describe(region, &view); !status) return status;
  *out = {shared_.uid,
          region,
          view.length,
          view.access,
          static_cast<uint16_t>(view.place.kind),
          view.place.device,
          view.place.is_host() ? 0 : longest_chunk(view.place)};
  return {};
}

// ---- granted ---------------------------------------------------------------------------------

Status EngineRegions::grant(uint64_t region, uint64_t peer) {
  std::shared_ptr<Peer> found;
  if (Status status = peers_.find(peer, &found); !status) return status;
  std::unique_ptr<const Grants> old;
  Status status = table_.grant(region, peer, &old);
  forget_grants(std::move(old));
  return status;
}

// A peer that is gone uses nothing any more, but may be taken off the list all the same.
Status EngineRegions::revoke_grant(uint64_t region, uint64_t id) {
  std::unique_ptr<const Grants> old;
  if (Status status = table_.revoke_grant(region, id, &old); !status) return status;
  // From here on the peer is refused. What it was granted before is stopped.
  std::shared_ptr<Peer> peer;
  Status fence;
  if (peers_.find(id, &peer)) fence = revoke_for(peer, region);
  forget_grants(std::move(old));
  return fence;
}

// ---- gone, for good or for a while -----------------------------------------------------------

Status EngineRegions::deregister(uint64_t region) {
  if (table_.drop_suspended(region)) return {};
  if (Status status = retire(region); !status) return status;
  table_.recycle(region);
  return {};
}

Status EngineRegions::suspend(uint64_t region) {
  if (Status status = retire(region); !status) return status;
  table_.suspend(region);
  return {};
}

Status EngineRegions::resume(uint64_t region) {
  // Other memory may have come to the same addresses meanwhile.
  RegionView view;
  if (Status status = table_.describe_suspended(region, &view); !status) return status;
  if (Status status = shared_.movers->admit(view.base, view.length, view.place); !status)
    return status;
  // What may throw comes before there is no way back.
  std::vector<std::shared_ptr<Peer>> peers = peers_.all();
  if (Status status = table_.resume(region, &shared_.epoch); !status) return status;
  tell_epoch(std::move(peers));
  return {};
}

// So that what peers post from now on is not refused for nothing. One whose Welcome still named the
// epoch before is among them when the service thread has been passed; without memory for that, it
// hears from its lanes.
void EngineRegions::tell_epoch(std::vector<std::shared_ptr<Peer>> peers) {
  uint64_t epoch = shared_.epoch.load();
  Nanos give_up = now_ns() + kLongestResume;
  (void)quietly([&] {
    pass_service(give_up);
    peers = peers_.all();
  });
  for (auto& peer : peers) peer->epochs().tell();
  for (auto& peer : peers) peer->epochs().await_heard(epoch, give_up);
}

// Returns when the service thread is through with what it is doing now.
void EngineRegions::pass_service(Nanos deadline) {
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

}  // namespace tcpx
