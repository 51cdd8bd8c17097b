// What this engine and a peer tell each other of their epochs, and who waits until the peer has
// heard. Any thread.
#pragma once

#include "engine/epochs.h"
#include "engine/peer_state.h"

namespace tcpx {

class EpochTalk {
 public:
  explicit EpochTalk(PeerState& state) : state_(state) {}

  // What the handshake has told either side, before there is a lane.
  void start(uint64_t of_peer, uint64_t ours);

  // ---- from lanes, in their loops ----
  // What is posted to the peer says that it is this young.
  uint64_t of_peer() const { return epochs_.of_peer(); }
  void hear(uint64_t of_peer) { epochs_.hear(of_peer); }
  // Of ours, the latest that the peer has heard of.
  uint64_t answered() const { return epochs_.answered(); }
  void was_heard(uint64_t ours);

  // ---- from who has raised our epoch ----
  void tell();
  // Waits until the peer has heard of this one or a later one, unless an answer of that kind is due
  // since earlier.
  void await_heard(uint64_t epoch, Nanos deadline);

 private:
  PeerState& state_;
  Epochs epochs_;
  uint64_t due_ = 0;  // one of ours it did not answer in time; guarded by the peer's lock
};

}  // namespace tcpx
