// What the parts of a peer share (Peer, Transfers, Notices, LostLanes, EpochTalk, PeerWatch,
// PeerEnd), and the lock without which nobody gets at it: what is guarded can be reached through a
// PeerLock alone, and a function that needs it takes one.
//
// The lock is taken inside loops' exclusive sections, so whoever holds it must never enter one.
// Nothing here is shared between peers.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/brief_mutex.h"
#include "base/wait.h"
#include "engine/lane_ledger.h"
#include "engine/lane_set.h"
#include "engine/notice_ledger.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "engine/shared.h"

namespace tcpx {

class PeerLock;

class PeerState {
 public:
  PeerState(EngineShared& of_engine, uint64_t number)
      : shared(of_engine),
        id(number),
        guarded_(of_engine.options.adaptive_striping ? Scheduler::Striping::kAdaptive
                                                     : Scheduler::Striping::kRoundRobin) {}

  EngineShared& shared;
  const uint64_t id;

  // Whether a lane that asks for more need take the lock at all. Atomics.
  bool may_have_chunks() const TCPX_NOT_CHECKED { return guarded_.scheduler.may_have_work(); }
  bool may_have_gpu_chunks() const TCPX_NOT_CHECKED {
    return guarded_.scheduler.may_have_gpu_work();
  }
  uint32_t chunk_news() const TCPX_NOT_CHECKED { return guarded_.scheduler.news(); }
  bool may_have_notices() const TCPX_NOT_CHECKED { return guarded_.notices.may_have_work(); }
  bool may_have_news() const TCPX_NOT_CHECKED { return guarded_.lost.may_have_news(); }
  bool heard_too_much_about_lanes() TCPX_NOT_CHECKED { return guarded_.lost.heard_too_much(); }

 private:
  friend class PeerLock;
  struct Guarded {
    explicit Guarded(Scheduler::Striping striping) : scheduler(striping) { live.reserve(64); }
    Session session;
    LaneSet lanes;
    Scheduler scheduler;
    std::vector<std::shared_ptr<TransferState>> live;  // posted and not ended
    NoticeLedger notices;
    LaneLedger lost;
    std::string name;
    uint64_t next_transfer_id = 1;
  };
  BriefMutex mu_;
  // Of the session, a lane, a notification, or what is loose.
  std::condition_variable changed_;
  Guarded guarded_ TCPX_GUARDED_BY(mu_);
};

class TCPX_SCOPED_LOCK PeerLock {
 public:
  explicit PeerLock(PeerState& state) TCPX_ACQUIRE(state.mu_) : state_(state) {
    state.mu_.lock();
    lock_ = state.mu_.adopt();
  }
  ~PeerLock() TCPX_RELEASE() {}
  PeerState::Guarded* operator->() const { return &guarded(); }

  // The session, a lane, a notification, or what is loose: somebody may wait for it.
  void tell_changed() const { state_.changed_.notify_all(); }
  template <class Predicate>
  bool wait_changed(Nanos deadline, Predicate predicate) {
    return wait_until(state_.changed_, lock_, deadline, predicate);
  }
  template <class Predicate>
  bool wait(std::condition_variable& cv, Nanos deadline, Predicate predicate) {
    return wait_until(cv, lock_, deadline, predicate);
  }

  // ---- lanes ----
  PeerLane* open_lane(uint32_t index) const {
    const LaneSet& lanes = guarded().lanes;
    PeerLane* lane = index < lanes.size() ? lanes[index].get() : nullptr;
    return lane != nullptr && lane->open() ? lane : nullptr;
  }
  // For something short.
  PeerLane* lightest_lane() const { return open_lane(guarded().scheduler.lightest()); }
  void wake(LaneBits lanes) const {
    while (!lanes.empty())
      if (PeerLane* lane = open_lane(lanes.take_first())) lane->wake();
  }
  void wake_all() const { wake(guarded().scheduler.open_lanes()); }
  LaneList started_lanes() const {
    const LaneSet& lanes = guarded().lanes;
    LaneList out(lanes.keep());
    for (auto& lane : lanes)
      if (lane && lane->started()) out.add(lane.get());
    return out;
  }

 private:
  // It is held as long as there is a PeerLock.
  PeerState::Guarded& guarded() const TCPX_NOT_CHECKED { return state_.guarded_; }

  PeerState& state_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace tcpx
