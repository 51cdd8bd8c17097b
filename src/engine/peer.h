// A peer: an authenticated remote engine, the session with it, and its lanes from the first to the
// last. What goes on in the session has parts of its own: Transfers, Notices and NoticesIn,
// LostLanes, EpochTalk, PeerWatch, PeerEnd; what they share, and the lock, is in peer_state.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/epoch_talk.h"
#include "engine/lane_report.h"
#include "engine/lost_lanes.h"
#include "engine/notices.h"
#include "engine/notices_in.h"
#include "engine/peer_end.h"
#include "engine/peer_state.h"
#include "engine/peer_watch.h"
#include "engine/refusal_budget.h"
#include "engine/slot_share.h"
#include "engine/transfers.h"
#include "session/auth.h"
#include "wire/handshake.h"

namespace tcpx {

// What the handshake has agreed on. Set once, before any lane exists.
struct PeerIdentity {
  wire::Uid uid{};
  uint64_t session = 0;
  uint64_t chunk_bytes = 0;
  uint32_t window = 0;
  auth::Key session_key;
};

class Peer : public std::enable_shared_from_this<Peer> {
 public:
  // How much of a transfer or notification is sent on the caller's thread before the rest is left
  // to the loop: enough for everything small, and well below a millisecond.
  static constexpr uint64_t kPostBudget = 1u << 20;

  Peer(EngineShared& shared, uint64_t id, bool came_to_us);
  ~Peer();

  // ---- the session begins (service thread) ----
  void established(PeerIdentity identity, std::string name);
  // Takes over an authenticated socket as lane `index`.
  Status add_lane(uint32_t index, const LaneFactory& factory, const LaneTraits& traits);
  // Inbound: how many lanes the client announced; it may bring each of them once.
  void expect_lanes(uint32_t lanes);
  bool may_join(uint32_t index);
  // Connecting is over: lanes are what they are. The peer is up when they have settled; then
  // `on_up` runs, at once or on the service thread. `note`: why lanes are missing.
  void connected(std::function<void()> on_up, std::string note);
  Status wait_connected(Nanos deadline);  // any thread

  // ---- it goes on ----
  void tick(Nanos now);  // service thread
  // A thread of this peer hangs in a plugin's call, and may use memory until that comes back.
  bool hangs(Nanos now);

  // ---- parts ----
  PeerState& parts() { return state_; }
  Transfers& transfers() { return transfers_; }
  Notices& notices() { return notices_; }
  NoticesIn& notices_in() { return notices_in_; }
  LostLanes& lost_lanes() { return lost_lanes_; }
  RefusalBudget& refusals() { return refusals_; }
  EpochTalk& epochs() { return epochs_; }
  PeerEnd& ending() { return ending_; }

  // ---- from lanes, in their loops ----
  void lane_settled(PeerLane& lane, const PathRefusal& refusal);
  // Whether that was all the session waited for.
  bool came_up(PeerLock& lock);
  void tell_up_later();

  // ---- facts ----
  uint64_t id() const { return state_.id; }
  EngineShared& shared() { return state_.shared; }
  const PeerIdentity& identity() const { return identity_; }  // once established
  bool is_established() const { return established_.load(); }
  // The session's number; 0: not established.
  uint64_t generation() const { return is_established() ? identity_.session : 0; }
  Session::State state();
  bool over();
  Status end_status();
  std::string name();
  LaneList lanes();  // all that ever started
  uint32_t live_lanes();
  // Why payload does not travel as it was meant to, and why lanes are missing; or "".
  struct Notes {
    std::string path, connect;
  };
  Notes notes();
  std::vector<LaneReport> lane_reports();  // also of lanes that are gone

  // What its lanes on an engine's loop hold of slots; for a lane that is being made, under the
  // lock.
  std::shared_ptr<SlotShare> slots_of(const Loop& loop);

  const bool inbound;

 private:
  PeerState state_;
  PeerIdentity identity_;
  std::atomic<bool> established_{false};
  Transfers transfers_{*this, state_};
  Notices notices_{*this, state_};
  NoticesIn notices_in_;
  LostLanes lost_lanes_{*this, state_};
  PeerWatch watch_{*this, state_};
  EpochTalk epochs_{state_};
  PeerEnd ending_{*this, state_};
  RefusalBudget refusals_;

  // ---- guarded by the lock ----
  Notes notes_;
  std::function<void()> on_up_;
  uint32_t expected_lanes_ = 0;
  std::vector<std::pair<const Loop*, std::shared_ptr<SlotShare>>> slots_;
};

}  // namespace tcpx
