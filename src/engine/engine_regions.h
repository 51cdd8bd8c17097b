// An engine's registered memory, who may use it, and the fences after which nobody does. Any thread
// but a loop's.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/fence.h"
#include "engine/peer_book.h"
#include "engine/shared.h"
#include "memory/region_table.h"
#include "wire/blobs.h"

namespace tcpx {

class EngineRegions {
 public:
  EngineRegions(EngineShared& shared, PeerBook& peers)
      : shared_(shared), table_(shared.regions), peers_(peers) {}

  Status register_memory(const RegionView& memory, uint64_t* region);
  // For these peers only, and who is granted it later.
  Status register_for(const RegionView& memory, std::span<const uint64_t> peers, uint64_t* region);
  Status grant(uint64_t region, uint64_t peer);
  Status revoke_grant(uint64_t region, uint64_t peer);
  Status deregister(uint64_t region);
  // The id names nothing until the region is resumed, for the same memory.
  Status suspend(uint64_t region);
  Status resume(uint64_t region);
  Status describe(uint64_t region, wire::RegionDescription* out) const;

 private:
  // Of a fence that begins now: when lanes that still hold memory are closed, and when it has
  // failed.
  struct FenceTimes {
    Nanos close_at, give_up;
  };
  uint64_t longest_chunk(const Place& place) const;
  void tell_epoch(std::vector<std::shared_ptr<Peer>> peers);
  void pass_service(Nanos deadline);
  // Fences.
  Status retire(uint64_t region);
  Status revoke_for(const std::shared_ptr<Peer>& peer, uint64_t region);
  void forget_grants(std::unique_ptr<const Grants> old);
  FenceTimes fence_times() const;
  static Status fence(const std::vector<std::shared_ptr<Peer>>& peers,
                      const Fence::Question& question, Nanos close_at, Nanos give_up);
  bool pass_every_loop();

  EngineShared& shared_;
  RegionTable& table_;
  PeerBook& peers_;
};

}  // namespace tcpx
