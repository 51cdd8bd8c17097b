#include "engine/lane_core.h"

#include "engine/peer.h"

namespace tcpx {

LaneCore::LaneCore(Peer& of_peer, uint32_t number, Loop& its_loop, const LaneTraits& of_path)
    : peer(of_peer),
      shared(of_peer.shared()),
      index(number),
      window(of_peer.identity().window),
      loop(its_loop),
      traits(of_path),
      moves(its_loop.mover(), window, of_path,
            of_path.own_loop() ? std::make_shared<SlotShare>() : of_peer.slots_of(its_loop)) {
  load.may_hang = of_path.may_hang;
}

void LaneCore::look_at_moves_soon() {
  if (moves.run_by_hand()) return loop.make_hot(lane->source_index());
  make_waiting();
  if (moves.running() > 0) loop.move_begun();
}

}  // namespace tcpx
