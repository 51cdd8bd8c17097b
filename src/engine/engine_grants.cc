// Regions for named peers only.
#include <algorithm>

#include "engine/engine.h"

namespace tcpx {

Status EngineCore::register_for(const RegionView& memory, std::span<const uint64_t> peers,
                                uint64_t* region) {
  if (Status status = shared_.movers->admit(memory.base, memory.length, memory.place); !status)
    return status;
  auto grants = std::make_unique<Grants>(peers.begin(), peers.end());
  std::shared_ptr<Peer> found;
  for (uint64_t peer : peers)
    if (Status status = find_peer(peer, &found); !status) return status;
  std::sort(grants->begin(), grants->end());
  grants->erase(std::unique(grants->begin(), grants->end()), grants->end());
  return shared_.regions.add(memory, region, std::move(grants));
}

Status EngineCore::grant(uint64_t region, uint64_t peer) {
  std::shared_ptr<Peer> found;
  if (Status status = find_peer(peer, &found); !status) return status;
  std::unique_ptr<const Grants> old;
  Status status = shared_.regions.grant(region, peer, &old);
  forget_grants(std::move(old));
  return status;
}

// A peer that is gone uses nothing any more, but may be taken off the list all the same.
Status EngineCore::revoke_grant(uint64_t region, uint64_t id) {
  std::unique_ptr<const Grants> old;
  if (Status status = shared_.regions.revoke_grant(region, id, &old); !status) return status;
  // From here on the peer is refused. What it was granted before is stopped.
  std::shared_ptr<Peer> peer;
  Status fence;
  if (find_peer(id, &peer)) fence = revoke_for(peer, region);
  forget_grants(std::move(old));
  return fence;
}

Status EngineCore::revoke_for(const std::shared_ptr<Peer>& peer, uint64_t region) {
  FenceTimes times = fence_times();
  auto revoke = [region](PeerLane& lane) { return lane.revoke(region); };
  return fence({peer}, revoke, times.close_at, times.give_up);
}

// Somebody may be reading the list. A loop that hangs in a plugin keeps it for ever.
void EngineCore::forget_grants(std::unique_ptr<const Grants> old) {
  if (old == nullptr) return;
  if (!pass_every_loop()) (void)old.release();
}

}  // namespace tcpx
