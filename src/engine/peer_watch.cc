#include "engine/peer_watch.h"

#include <algorithm>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {

// Between the first goodbye of a peer and that on its last lane: this many ticks in which no other
// lane was heard, since a lane that the peer did not have yet brings none. Ticks, not time: a
// process that was stopped has not waited. Those count that are this far apart: others make the
// service thread tick, too. And not for ever.
constexpr Nanos kTicksApart = 15 * kMilli;
constexpr uint32_t kGoodbyesFollow = 10;
constexpr uint32_t kGoodbyesEnd = 50;
constexpr Nanos kLongRound = 100 * kMilli;  // of a lane's thread, else it takes microseconds

}  // namespace

void PeerWatch::tick(Nanos now) {
  if (end_hung(now) || end_refused(now) || end_left(now)) return;
  peer_.ending().or_fail([&] { peer_.lost_lanes().close_given_up(); });
  peer_.ending().or_fail([&] { peer_.notices().end_pause(now); });
  peer_.transfers().expire_deadlines(now);
  peer_.transfers().advance_ends();
  if (in_a_call(now)) return;
  watch_lanes(now);
  report_stalls(now);
  go_on_after_refusals(now);
}

bool PeerWatch::end_hung(Nanos now) {
  for (PeerLane* lane : peer_.lanes()) {
    if (!lane->traits().may_hang || lane->is_shut() || !lane->loop().hangs(now)) continue;
    peer_.ending().begin(peer_error(
        TCPX_PATH_UNAVAILABLE, strf("the net plugin hangs in a call on lane {}; its thread and the "
                                    "memory it was given are lost, unless it comes back",
                                    lane->index())));
    return true;
  }
  return false;
}

bool PeerWatch::end_refused(Nanos now) {
  Status refused;
  {
    PeerLock lock(state_);
    const LaneRefusal* refusal = lock->session.refusal_due(now);
    if (refusal == nullptr) return false;
    refused = refusal->why.status;
  }
  peer_.ending().begin(refused);
  return true;
}

bool PeerWatch::end_left(Nanos now) {
  {
    PeerLock lock(state_);
    if (!lock->session.peer_left() || now - last_left_tick_ < kTicksApart) return false;
    last_left_tick_ = now;
    uint64_t heard = 0;
    for (auto& lane : lock->lanes)
      if (lane && lane->open() && !lock->session.said_bye(lane->index()))
        heard += lane->pings().bytes_heard();
    quiet_ticks_ = heard == heard_leaving_ ? quiet_ticks_ + 1 : 0;
    heard_leaving_ = heard;
    if (++left_ticks_ < kGoodbyesEnd && quiet_ticks_ < kGoodbyesFollow) return false;
  }
  peer_.ending().begin(PeerEnd::left());
  return true;
}

// Nothing is heard while the thread that would hear it is in a plugin's call: that is no silence of
// the peer's.
bool PeerWatch::in_a_call(Nanos now) {
  LaneList all = peer_.lanes();
  return std::any_of(all.begin(), all.end(), [now](PeerLane* lane) {
    return lane->traits().may_hang && lane->loop().round_time(now) > kLongRound;
  });
}

void PeerWatch::watch_lanes(Nanos now) {
  const EngineOptions& options = state_.shared.options;
  Nanos latest = 0;
  LaneList all = peer_.lanes(), open;
  for (PeerLane* lane : all) {
    if (!lane->open()) continue;
    open.add(lane);
    latest = std::max(latest, lane->pings().last_heard());
  }
  if (open.size() == 0) return;
  if (now - latest > options.peer_timeout)
    return peer_.ending().begin(peer_error(
        TCPX_PEER_TIMEOUT, strf("nothing heard from the peer for {} ms", (now - latest) / kMilli)));
  // After a silence of all lanes, or of this process, one of them is heard first: that says nothing
  // about the others.
  if (std::max(now - latest, now - last_watch_) > options.lane_timeout) quiet_until_ = now;
  for (PeerLane* lane : open) watch_lane(*lane, all.kept(), now, latest, open.size() == 1);
  last_watch_ = now;
}

// `latest`: when the peer was heard on any lane.
void PeerWatch::watch_lane(PeerLane& lane, const LanesKept& kept, Nanos now, Nanos latest,
                           bool alone) {
  const EngineOptions& options = state_.shared.options;
  const Nanos heard = std::max(lane.pings().last_heard(), quiet_until_);
  auto give_up = [&](std::string why) {
    lane.ask_if_answered(kept, [lane = &lane, why = std::move(why)] {
      lane->lane().close(lane_error(TCPX_PEER_TIMEOUT, why));
    });
  };
  if (now - lane.pings().last_heard() > options.keepalive) lane.pings().ask();
  if (Nanos since = lane.unread_since(); since != 0 && now - since > options.lane_timeout)
    give_up(strf("the peer has not read its answers for {} ms", (now - since) / kMilli));
  if (!alone && latest - heard > options.lane_timeout)
    give_up(strf("silent for {} ms while other lanes work", (now - heard) / kMilli));
  if (!lane.traits().keeps_stream_order) watch_carrier(lane, kept, now);
}

// The stream of a lane may be alive while what carries its payload is not. While the stream is
// silent too, or this process was stopped, nothing can be said.
void PeerWatch::watch_carrier(PeerLane& lane, const LanesKept& kept, Nanos now) {
  Nanos patience = state_.shared.options.lane_timeout;
  Nanos silent = (state_.shared.options.keepalive + patience) / 2;  // longer than a ping takes
  if (now - lane.pings().last_heard() > silent || now - last_watch_ > silent)
    lane.pings().audible_since = now;
  if (now - lane.pings().audible_since < patience) return;
  lane.ask_if_answered(kept, [lane = &lane, now, patience] {
    if (!lane->open()) return;
    std::string why = lane->lane().stalled(now, patience);
    if (!why.empty()) lane->lane().close(lane_error(TCPX_PEER_TIMEOUT, why));
  });
}

// Lanes that are not read because the peer named memory that it may not use too often.
void PeerWatch::go_on_after_refusals(Nanos now) {
  for (PeerLane* lane : peer_.lanes()) {
    if (!lane->open() || !lane->refusals().hold()) continue;
    if (refusal_lines_.allow(now, state_.shared.log))
      state_.shared.log.warn(
          "peer {} ({}) names memory that it may not use, again and again; lane {} is read no "
          "faster than {} of these a second",
          state_.id, escaped(peer_.name()), lane->index(), RefusalBudget::kPerSecond);
    if (peer_.refusals().has_some(now)) lane->wake();
  }
}

// Names what hangs, once per keepalive interval and peer.
void PeerWatch::report_stalls(Nanos now) {
  Nanos age = 2 * state_.shared.options.keepalive;
  if (now - last_stall_report_.load() < age || !state_.shared.log.enabled(TCPX_LOG_WARN)) return;
  LaneList all = peer_.lanes();
  for (PeerLane* lane : all) {
    if (!lane->open() || lane->in_flight() == 0) continue;
    lane->ask_if_answered(all.kept(), [this, lane, now, age] {
      std::string text = lane->describe_stall(now, age);
      if (text.empty()) return;
      last_stall_report_.store(now);
      state_.shared.log.warn("peer {} ({}) stalls: {}", state_.id, escaped(peer_.name()), text);
    });
  }
}

}  // namespace tcpx
