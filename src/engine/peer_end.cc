#include "engine/peer_end.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/peer.h"

namespace tcpx {

namespace {

constexpr Nanos kLookEvery = 5 * kMilli;

bool every_lane_is_shut(const PeerLock& lock) {
  return std::all_of(lock->lanes.begin(), lock->lanes.end(),
                     [](auto& lane) { return !lane || lane->is_shut(); });
}

}  // namespace

// ---- it is wanted ----------------------------------------------------------------------------

// Lanes are asked here, and the rest is `advance`.
void PeerEnd::begin(const Status& status) noexcept {
  or_fail([&] {
    Status ended(status.code(), TCPX_BLAST_PEER, status.text());
    LaneList all;
    {
      PeerLock lock(state_);
      bool failed_before = failure_.exchange(TCPX_OK) != TCPX_OK;
      if (!lock->session.begin_end(std::move(ended)) && !failed_before) return;
      all = LaneList(lock->lanes.keep());
      for (auto& lane : lock->lanes)
        if (lane && !lane->is_shut()) all.add(lane.get());
      lock.tell_changed();
    }
    for (PeerLane* lane : all) (void)lane->ask_shut(status, all.kept());
    (void)advance(now_ns());
  });
}

void PeerEnd::ask(const Status& status) noexcept {
  if (asked_.exchange(true)) return;
  or_fail([&] {
    state_.shared.defer([this, keep = peer_.shared_from_this(), status] { begin(status); });
  });
}

void PeerEnd::fail(tcpx_code code) noexcept {
  failure_.store(code);
  state_.shared.hurry();
}

// Whether there was something to begin, or to go on with.
bool PeerEnd::begin_failed() {
  tcpx_code code = failure_.load();
  if (code == TCPX_OK) return false;
  begin(peer_error(code, code == TCPX_NO_MEMORY ? "out of memory" : "internal error"));
  return true;
}

Status PeerEnd::left() {
  return peer_error(TCPX_PEER_CLOSED, "the peer said goodbye");
}

// ---- from lanes ------------------------------------------------------------------------------

// What the peer sent before its goodbye, the last answers, is still to come on the other lanes: the
// session ends when they have said it too.
void PeerEnd::lane_said_bye(PeerLane& lane) {
  PeerLock lock(state_);
  lock->session.peer_said_bye(lane.index());
  if (lock->session.said_every_bye(lock->scheduler.open_lanes())) ask(left());
}

// It was closed because the session ends.
void PeerEnd::lane_shut() {
  PeerLock lock(state_);
  lock.tell_changed();
  if (every_lane_is_shut(lock) && !lock->session.ended())
    state_.shared.defer([this, keep = peer_.shared_from_this()] { (void)advance(now_ns()); });
}

// ---- it goes on ------------------------------------------------------------------------------

bool PeerEnd::tick(Nanos now) {
  if (begin_failed()) return true;
  if (!peer_.over()) return false;
  if (advance(now)) (void)dismantle(0);
  return true;
}

// Transfers end when all lanes are closed, and nothing touches their memory any more; or when all
// that is left of the lanes hangs in a plugin. Whether they have.
bool PeerEnd::advance(Nanos now) {
  PeerLock lock(state_);
  if (!lock->session.over() || lock->session.ended()) return lock->session.ended();
  bool held = false, waiting = false;
  for (auto& lane : lock->lanes) {  // all: who hangs is seen by looking
    if (!lane || lane->is_shut()) continue;
    (lane->loop().hangs(now) || lane->moves_hang(now) ? held : waiting) = true;
  }
  if (waiting) return false;
  peer_.transfers().end_all(lock, held);
  peer_.notices().end_all(lock);
  lock->lost.forget_all();
  state_.shared.counters.peers_lost.fetch_add(1);
  lock->session.end();
  lock.tell_changed();
  return true;
}

// As long as plugins may hang, no longer: that one hangs is told by the clock alone.
void PeerEnd::await() {
  while (!advance(now_ns())) {
    PeerLock lock(state_);
    lock.wait_changed(now_ns() + kLookEvery,
                      [&] { return lock->session.over() && every_lane_is_shut(lock); });
  }
}

void PeerEnd::for_good(const Status& status) noexcept {
  auto until = [](auto&& done) {
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  until([&] {
    begin(status);
    return failure_.load() == TCPX_OK;
  });
  until([&] { return quietly([&] { await(); }); });
}

bool PeerEnd::ended_wholly() {
  PeerLock lock(state_);
  return lock->session.ended();
}

// ---- what remains ----------------------------------------------------------------------------

bool PeerEnd::dismantle(Nanos patience) {
  LaneList all;
  {
    PeerLock lock(state_);
    if (dismantled_ || !lock->session.ended()) return dismantled_;
    all = LaneList(lock->lanes.keep());
    for (auto& lane : lock->lanes)
      if (lane) all.add(lane.get());
  }
  for (PeerLane* lane : all)
    if (!lane->is_shut() || !lane->stop_loop(patience)) return false;
  std::vector<LaneReport> reports = peer_.lane_reports();
  PeerLock lock(state_);
  if (dismantled_) return true;
  past_lanes_ = std::move(reports);
  lock->scheduler.forget_lanes();
  lock->lanes.let_go();
  lock->live = {};
  dismantled_ = true;
  return true;
}

bool PeerEnd::dismantled() {
  PeerLock lock(state_);
  return dismantled_;
}

size_t PeerEnd::lanes_not_shut() {
  PeerLock lock(state_);
  return static_cast<size_t>(std::count_if(lock->lanes.begin(), lock->lanes.end(),
                                           [](auto& lane) { return lane && !lane->is_shut(); }));
}

}  // namespace tcpx
