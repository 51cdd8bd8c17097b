#include "engine/lost_lanes.h"

#include <utility>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

void LostLanes::lost(
    PeerLane& lane, const Status& status, UnconfirmedWrites writes,
    std::vector<ChunkWork> reads) {  // NOLINT(*-unnecessary-value-param): taken over
  bool last, up = false;
  Status why = status;
  {
    PeerLock lock(state_);
    // None is dealt to a lane that is no longer open.
    if (ChunkWork dealt; lane.out().take_dealt(&dealt))
      peer_.transfers().take_back(lock, dealt, lane.index());
    if (const LaneRefusal* refusal = lock->session.refusal_stands(now_ns()))
      why = refusal->why.status;
    lock.tell_changed();
    if (lock->session.over()) return;  // its end settles everything
    const LaneBits open = lock->scheduler.open_lanes();
    if (lock->session.leaving()) {
      if (lock->session.said_every_bye(open)) peer_.ending().ask(PeerEnd::left());
      return;
    }
    last = open.empty() || status.blast() == TCPX_BLAST_PEER;
    if (!last) {
      lock->session.lane_lost(lane.index());
      up = peer_.came_up(lock);  // this lane may be what the others waited for
      peer_.transfers().lane_lost(lock, lane);
      peer_.transfers().send_again(lock, reads);
      lock->lost.lost(lane.index(), std::move(writes));
      lock->notices.lane_lost(lane.index());
      lock.wake_all();
    }
  }
  EngineShared& shared = state_.shared;
  if (status.code() == TCPX_PROTOCOL_ERROR) shared.counters.protocol_errors.fetch_add(1);
  if (last) return peer_.ending().ask(why);
  shared.counters.lanes_lost.fetch_add(1);
  if (up) peer_.tell_up_later();
  shared.log.warn("peer {} ({}): lane {} via {} lost: {}; going on with {} lanes", state_.id,
                  escaped(peer_.name()), lane.index(), lane.lane().interface(), status.to_string(),
                  peer_.live_lanes());
}

bool LostLanes::next_frame(wire::Header* out) {
  if (!may_have_news()) return false;
  PeerLock lock(state_);
  LaneLedger::News news;
  if (!lock->lost.next(&news)) return false;
  *out = {};
  out->chunk = news.lane;
  out->type = wire::FrameType::kLaneDown;
  if (news.kind == LaneLedger::News::Kind::kQuestion) return true;
  out->type = wire::FrameType::kLaneDownAck;
  if (news.lane < lock->lanes.size() && lock->lanes[news.lane]) {
    const NoticesBrought& brought = lock->lanes[news.lane]->notices().brought();
    out->aux = brought.count;
    out->transfer = brought.delivered;
  }
  return true;
}

Status LostLanes::hear(const wire::Header& header) {
  if (state_.heard_too_much_about_lanes())
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("more questions and answers about lost lanes than a session of at "
                           "most {} lanes can have",
                           wire::kMaxLanes));
  if (header.type == wire::FrameType::kLaneDown)
    given_up_by_peer(header.chunk);
  else
    closed_at_peer(header.chunk, {header.aux, header.transfer});
  return {};
}

// The peer gave this lane up. Our end is closed before we confirm, so nothing more lands through
// it. Closing has to happen in that lane's loop, so the service thread asks for it.
void LostLanes::given_up_by_peer(uint32_t index) {
  {
    PeerLock lock(state_);
    if (!lock->lost.given_up_by_peer(index)) return;
  }
  state_.shared.defer([peer = peer_.shared_from_this()] {
    peer->ending().or_fail([&] { peer->lost_lanes().close_given_up(); });
  });
}

// In its loop: nobody waits for a lane whose thread is busy.
void LostLanes::close_given_up() {
  LaneBits to_close;
  LanesKept kept;
  {
    PeerLock lock(state_);
    to_close = lock->lost.take_to_close();
    kept = lock->lanes.keep();
  }
  while (!to_close.empty()) {
    const uint32_t index = to_close.take_first();
    PeerLane* lane = nullptr;
    {
      PeerLock lock(state_);
      if (index < lock->lanes.size()) lane = lock->lanes[index].get();
    }
    if (lane == nullptr) {
      closed_here(index);
      continue;
    }
    (void)lane->loop().ask([lane, keep = peer_.shared_from_this(), kept] {
      lane->shut_for_peer(lane_error(TCPX_PEER_DISCONNECTED, "the peer gave this lane up"));
    });
  }
}

void LostLanes::closed_here(uint32_t index) {
  PeerLock lock(state_);
  lock->lost.closed(index);
  if (PeerLane* carrier = lock.lightest_lane()) carrier->wake();
}

void LostLanes::closed_at_peer(uint32_t index, const NoticesBrought& brought) {
  UnconfirmedWrites writes;
  PeerLock lock(state_);
  if (!lock->lost.confirmed(index, &writes)) return;
  peer_.transfers().lost_lane_closed(lock, std::move(writes), brought);
  lock.wake_all();
}

}  // namespace tcpx
