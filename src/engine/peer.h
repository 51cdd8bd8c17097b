// A peer: an authenticated remote engine, the session with it, and its lanes from the first to the
// last. What goes on in the session has parts of its own: Transfers, Notices and NoticesIn,
// LostLanes, PeerWatch; what they share, and the lock, is in peer_state.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/caught.h"
#include "engine/epochs.h"
#include "engine/lane_report.h"
#include "engine/lost_lanes.h"
#include "engine/notices.h"
#include "engine/notices_in.h"
#include "engine/peer_state.h"
#include "engine/peer_watch.h"
#include "engine/refusal_budget.h"
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
  // What the handshake has told either side, before there is a lane.
  void start_epochs(uint64_t of_peer, uint64_t ours);
  // Takes over an authenticated socket as lane `index`.
  Status add_lane(uint32_t index, const LaneFactory& factory, const LaneTraits& traits);
  // Inbound: how many lanes the client announced; it may bring each of them once.
  void expect_lanes(uint32_t lanes);
  bool may_join(uint32_t index);
  // Connecting is over: lanes are what they are. The peer is up when they have settled; then
  // `on_up` runs, at once or on the service thread. `note`: why lanes are missing.
  void connected(std::function<void()> on_up, std::string note);
  Status wait_connected(Nanos deadline);  // any thread

  // ---- it ends ----
  // Has its lanes closed; when they are, ends every transfer and notification with `status`.
  // Idempotent. Not from a loop. Waits for nobody: await_end does, for those to whom it matters
  // that nothing of the peer touches memory any more.
  void end(const Status& status) noexcept;
  void await_end();
  // Both, however often it takes for want of memory. Of an engine whose service has ended.
  void end_for_good(const Status& status) noexcept;
  void ask_end(const Status& status) noexcept;  // from a loop: the service thread ends it
  // The same with no memory to be had.
  void fail(tcpx_code code) noexcept;
  // What f throws ends the peer.
  template <class F>
  void or_fail(F&& f) noexcept {
    try {
      f();
    } catch (...) {
      fail(caught(TCPX_BLAST_PEER).code());
    }
  }
  static Status left();  // the peer said goodbye
  bool ended_wholly();
  // Of a session that has ended wholly: gives its lanes and their threads back, and keeps what is
  // told of them. False: not within `patience`, or a plugin hangs; ask again.
  bool dismantle(Nanos patience);
  bool dismantled();
  // A thread of this peer hangs in a plugin's call, and may use memory until that comes back.
  bool hangs(Nanos now);
  size_t lanes_not_shut();
  void tick(Nanos now);  // service thread

  // ---- parts ----
  PeerState& parts() { return state_; }
  Transfers& transfers() { return transfers_; }
  Notices& notices() { return notices_; }
  NoticesIn& notices_in() { return notices_in_; }
  LostLanes& lost_lanes() { return lost_lanes_; }
  RefusalBudget& refusals() { return refusals_; }
  const Epochs& epochs() const { return epochs_; }
  void hear_epoch(uint64_t of_peer) { epochs_.hear(of_peer); }
  void epoch_was_heard(uint64_t ours);
  // Tells the peer of our epoch, and waits until it has heard of this one or a later one, unless
  // an answer of that kind is due since earlier.
  void tell_epoch();
  void await_epoch_heard(uint64_t epoch, Nanos deadline);

  // ---- from lanes, in their loops ----
  void lane_settled(PeerLane& lane, const PathRefusal& refusal);
  void lane_shut();
  void lane_said_bye(PeerLane& lane);
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

  const bool inbound;

 private:
  bool end_failed();
  bool advance_end(Nanos now);

  PeerState state_;
  PeerIdentity identity_;
  std::atomic<bool> established_{false};
  Transfers transfers_{*this, state_};
  Notices notices_{*this, state_};
  NoticesIn notices_in_;
  LostLanes lost_lanes_{*this, state_};
  PeerWatch watch_{*this, state_};
  Epochs epochs_;
  RefusalBudget refusals_;
  std::atomic<tcpx_code> failure_{TCPX_OK};  // to be ended with it by the service thread
  std::atomic<bool> end_asked_{false};       // the service thread knows

  // ---- guarded by the lock ----
  Notes notes_;
  std::function<void()> on_up_;
  uint32_t expected_lanes_ = 0;
  uint64_t epoch_due_ = 0;              // one of ours it did not answer in time
  std::vector<LaneReport> past_lanes_;  // once it is dismantled
  bool dismantled_ = false;
};

}  // namespace tcpx
