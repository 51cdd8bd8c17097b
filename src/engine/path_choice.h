// By which path a peer is reached: what it is offered, which of them a lane goes by, and why that
// is none of the better ones.
#pragma once

#include "engine/addresses.h"
#include "engine/peer.h"
#include "path/paths.h"
#include "session/handshake.h"

namespace tcpx {

class PathChoice {
 public:
  PathChoice(EngineShared& shared, const Addresses& addresses)
      : shared_(shared), addresses_(addresses) {}

  // Probes what the options accept. A required path is one that peers must have, and one that is
  // only allowed may be missing here.
  Status open();
  // To a peer at `remote`.
  wire::PathMask offer(const wire::Address& remote) const;

  // ---- service thread ----
  // A socket that has shaken hands becomes lane `index`, by the best path that both ends have.
  Status adopt_lane(Peer& peer, uint32_t index, Handshake& handshake) const;
  // The peer is up: it is counted, and its path said.
  void connected(Peer& peer) const;

 private:
  LaneFactory lane_factory(const Path& path, const Peer& peer, uint32_t index,
                           Handshake& handshake) const;

  EngineShared& shared_;
  const Addresses& addresses_;
  Paths paths_;
};

}  // namespace tcpx
