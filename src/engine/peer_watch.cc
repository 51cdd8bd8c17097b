// What the service thread looks for now and then: deadlines, silence, plugins that hang.
#include <algorithm>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

namespace {
// A peer that dies while its comms are set up looks like one without the path, until its stream
// ends too. That takes this long at most where the kernel closes both. Who knows better waits
// longer before it closes: the other side must not take that for a death.
constexpr Nanos kStreamFollows = 50 * kMilli;
constexpr Nanos kOtherSideKnows = 100 * kMilli;
static_assert(kOtherSideKnows > kStreamFollows);
// Between the first goodbye of a peer and that on its last lane: this many ticks in which no other
// lane was heard, since a lane that the peer did not have yet brings none. Ticks, not time: a
// process that was stopped has not waited. Those count that are this far apart: others make the
// service thread tick, too. And not for ever.
constexpr Nanos kTicksApart = 15 * kMilli;
constexpr uint32_t kGoodbyesFollow = 10;
constexpr uint32_t kGoodbyesEnd = 50;
constexpr Nanos kLongRound = 100 * kMilli;  // of a lane's thread, else it takes microseconds
}  // namespace

// Whether there was something to end, or to go on ending.
bool Peer::end_failed() {
  tcpx_code code = failure_.load();
  if (code == TCPX_OK) return false;
  end(peer_error(code, code == TCPX_NO_MEMORY ? "out of memory" : "internal error"));
  return true;
}

void Peer::tick(Nanos now) {
  if (end_failed()) return;
  if (state() == State::kEnded) {
    if (advance_end(now)) (void)dismantle(0);
    return;
  }
  if (end_hung(now) || end_refused(now) || end_left(now)) return;
  or_fail([&] { close_given_up_lanes(); });
  or_fail([&] { end_notice_pause(now); });
  expire_deadlines(now);
  advance_ends();
  if (in_a_call(now)) return;
  watch_lanes(now);
  report_stalls(now);
  go_on_after_refusals(now);
}

// A lane whose thread is in a plugin's call may be there for ever. To wait for it would hold up the
// engine's other peers, so nothing here waits for a lane: it is asked, and looked at with a later
// tick.
bool Peer::end_hung(Nanos now) {
  for (PeerLane* lane : lanes()) {
    if (!lane->has_own_loop() || lane->is_shut() || !lane->loop().hangs(now)) continue;
    end(peer_error(TCPX_PATH_UNAVAILABLE,
                   strf("the net plugin hangs in a call on lane {}; its thread and the memory it "
                        "was given are lost, unless it comes back",
                        lane->index())));
    return true;
  }
  return false;
}

// Nothing is heard while the thread that would hear it is in a plugin's call: that is no silence of
// the peer's.
bool Peer::in_a_call(Nanos now) {
  LaneList all = lanes();
  return std::any_of(all.begin(), all.end(), [now](PeerLane* lane) {
    return lane->has_own_loop() && lane->loop().round_time(now) > kLongRound;
  });
}

// A stream that ends now is no longer the other half of a death, but the peer's answer to our word.
bool Peer::refusal_stands_locked(Nanos now) const {
  return !refusal_.ok() && (refusal_is_certain_ || now - refused_at_ >= kStreamFollows);
}

bool Peer::end_refused(Nanos now) {
  Status refusal;
  {
    std::lock_guard lock(mu);
    Nanos wait = refusal_is_certain_ ? kOtherSideKnows : kStreamFollows;
    if (refusal_.ok() || now - refused_at_ < wait) return false;
    refusal = refusal_;
  }
  end(refusal);
  return true;
}

bool Peer::end_left(Nanos now) {
  {
    std::lock_guard lock(mu);
    if (!left_ || now - last_left_tick_ < kTicksApart) return false;
    last_left_tick_ = now;
    uint64_t heard = 0;
    for (auto& lane : lanes_)
      if (lane && lane->open() && !lane->heard_bye) heard += lane->bytes_heard();
    quiet_ticks_ = heard == heard_leaving_ ? quiet_ticks_ + 1 : 0;
    heard_leaving_ = heard;
    if (++left_ticks_ < kGoodbyesEnd && quiet_ticks_ < kGoodbyesFollow) return false;
  }
  end(peer_left());
  return true;
}

// It ends when lanes have let go of its memory: `advance_ends`.
void Peer::expire_deadlines(Nanos now) {
  std::lock_guard lock(mu);
  for (auto& transfer : live_) {
    TransferState& t = *transfer;
    // One that has failed, and waits for what is still out, has a deadline like any other.
    if (t.deadline > now || t.close_at != kNever || (t.ending && t.status.ok())) continue;
    begin_end_locked(
        transfer,
        transfer_error(TCPX_DEADLINE, strf("the transfer's deadline passed: {} of {} chunks "
                                           "confirmed, {} in flight",
                                           t.settled, t.plan.chunks.size(), t.in_flight)),
        now + kLongestHold);
  }
}

void Peer::watch_lanes(Nanos now) {
  const EngineOptions& options = shared_.options;
  Nanos latest = 0;
  LaneList all = lanes(), open;
  for (PeerLane* lane : all) {
    if (!lane->open()) continue;
    open.add(lane);
    latest = std::max(latest, lane->last_heard());
  }
  if (open.size() == 0) return;
  if (now - latest > options.peer_timeout)
    return end(peer_error(TCPX_PEER_TIMEOUT,
                          strf("nothing heard from the peer for {} ms", (now - latest) / kMilli)));
  // After a silence of all lanes, or of this process, one of them is heard first: that says nothing
  // about the others.
  if (std::max(now - latest, now - last_watch_) > options.lane_timeout) quiet_until_ = now;
  for (PeerLane* lane : open) {
    Nanos heard = std::max(lane->last_heard(), quiet_until_);
    if (now - lane->last_heard() > options.keepalive) lane->ask_ping();
    if (Nanos since = lane->unread_since(); since != 0 && now - since > options.lane_timeout)
      lane->ask_if_answered(all.kept(), [lane, unread = now - since] {
        lane->lane().close(
            lane_error(TCPX_PEER_TIMEOUT,
                       strf("the peer has not read its answers for {} ms", unread / kMilli)));
      });
    if (open.size() > 1 && latest - heard > options.lane_timeout)
      lane->ask_if_answered(all.kept(), [lane, silent = now - heard] {
        lane->lane().close(lane_error(
            TCPX_PEER_TIMEOUT, strf("silent for {} ms while other lanes work", silent / kMilli)));
      });
    if (lane->has_own_loop()) watch_carrier(*lane, all.kept(), now);
  }
  last_watch_ = now;
}

// The stream of a lane may be alive while what carries its payload is not. While the stream is
// silent too, or this process was stopped, nothing can be said.
void Peer::watch_carrier(PeerLane& lane, const LanesKept& kept, Nanos now) {
  Nanos patience = shared_.options.lane_timeout;
  Nanos silent = (shared_.options.keepalive + patience) / 2;  // longer than a ping takes
  if (now - lane.last_heard() > silent || now - last_watch_ > silent) lane.audible_since = now;
  if (now - lane.audible_since < patience) return;
  lane.ask_if_answered(kept, [lane = &lane, now, patience] {
    if (!lane->open()) return;
    std::string why = lane->lane().stalled(now, patience);
    if (!why.empty()) lane->lane().close(lane_error(TCPX_PEER_TIMEOUT, why));
  });
}

// Lanes that are not read because the peer named memory that it may not use too often.
void Peer::go_on_after_refusals(Nanos now) {
  for (PeerLane* lane : lanes()) {
    if (!lane->open() || !lane->held_for_refusals()) continue;
    if (refusal_lines_.allow(now, shared_.log))
      shared_.log.warn(
          "peer {} ({}) names memory that it may not use, again and again; lane {} is read no "
          "faster than {} of these a second",
          id_, escaped(name()), lane->index(), RefusalBudget::kPerSecond);
    if (refusals_.has_some(now)) lane->wake();
  }
}

// Names what hangs, once per keepalive interval and peer.
void Peer::report_stalls(Nanos now) {
  Nanos age = 2 * shared_.options.keepalive;
  if (now - last_stall_report_.load() < age || !shared_.log.enabled(TCPX_LOG_WARN)) return;
  LaneList all = lanes();
  for (PeerLane* lane : all) {
    if (!lane->open() || lane->in_flight() == 0) continue;
    lane->ask_if_answered(all.kept(), [this, lane, now, age] {
      std::string text = lane->describe_stall(now, age);
      if (text.empty()) return;
      last_stall_report_.store(now);
      shared_.log.warn("peer {} ({}) stalls: {}", id_, escaped(name()), text);
    });
  }
}

}  // namespace tcpx
