// What was on a lane that is lost goes on over the others, once it cannot land twice; and lanes
// that the peer has lost are closed here.
#pragma once

#include <vector>

#include "engine/peer_state.h"

namespace tcpx {

class LostLanes {
 public:
  LostLanes(Peer& peer, PeerState& state) : peer_(peer), state_(state) {}

  // ---- from lanes, in their loops ----
  void lost(PeerLane& lane, const Status& status, UnconfirmedWrites writes,
            std::vector<ChunkWork> reads);
  // What is to be said about lanes; false: nothing.
  bool may_have_news() const { return state_.may_have_news(); }
  bool next_frame(wire::Header* out);
  Status hear(const wire::Header& header);
  // Nothing of a lane that the peer has given up touches memory any more.
  void closed_here(uint32_t index);

  // ---- service thread ----
  void close_given_up();

 private:
  void given_up_by_peer(uint32_t index);
  void closed_at_peer(uint32_t index, const NoticesBrought& brought);

  Peer& peer_;
  PeerState& state_;
};

}  // namespace tcpx
