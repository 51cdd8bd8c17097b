// Regions for named peers only.
#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/engine.h"

namespace tcpx {

namespace {

constexpr Nanos kLongestFence = 10 * kSecond;

}  // namespace

Status EngineCore::register_for(void* base, uint64_t length, uint32_t access,
                                std::span<const uint64_t> peers, uint64_t* region) {
  auto grants = std::make_unique<Grants>(peers.begin(), peers.end());
  std::shared_ptr<Peer> found;
  for (uint64_t peer : peers)
    if (Status status = find_peer(peer, &found); !status) return status;
  std::sort(grants->begin(), grants->end());
  grants->erase(std::unique(grants->begin(), grants->end()), grants->end());
  return shared_.regions.add(base, length, access, region, std::move(grants));
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
  if (find_peer(id, &peer)) fence = revoke_for(*peer, region);
  forget_grants(std::move(old));
  return fence;
}

Status EngineCore::revoke_for(Peer& peer, uint64_t region) {
  Nanos give_up = now_ns() + std::min(shared_.options.deadline, kLongestFence);
  for (;;) {
    Peer::Hold hold = peer.revoke_remote(region);
    if (hold == Peer::Hold::kNone) return {};
    if (hold == Peer::Hold::kForEver)
      return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE,
                    "the net plugin hangs in a call and may still use the region's memory for the "
                    "peer");
    if (now_ns() > give_up)
      return Status(TCPX_DEADLINE, TCPX_BLAST_ENGINE,
                    "bytes of the peer were still being placed into the region at the deadline; "
                    "take the grant back again to go on waiting");
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Somebody may be reading the list: it goes when every loop has been passed. One that hangs in a
// plugin keeps it for ever.
void EngineCore::forget_grants(std::unique_ptr<const Grants> old) {
  if (old == nullptr) return;
  bool passed = true;
  for (auto& loop : shared_.loops) passed &= loop->run_exclusive([] {});
  for (auto& peer : all_peers())
    for (PeerLane* lane : peer->lanes())
      if (lane->has_own_loop()) passed &= lane->in_loop([] {});
  if (!passed) (void)old.release();
}

}  // namespace tcpx
