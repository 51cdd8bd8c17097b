// What was on a lane that is lost goes on over the others, once it cannot land twice.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "engine/peer.h"

namespace tcpx {

bool Peer::next_control(wire::Header* out) {
  if (!control_waiting_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mu);
  *out = {};
  if (!to_ask_about_.empty()) {
    out->type = wire::FrameType::kLaneDown;
    out->chunk = to_ask_about_.take_first();
    return true;
  }
  if (to_confirm_.empty()) {
    control_waiting_.store(false, std::memory_order_relaxed);
    return false;
  }
  uint32_t index = to_confirm_.take_first();
  out->type = wire::FrameType::kLaneDownAck;
  out->chunk = index;
  if (index < lanes_.size() && lanes_[index]) {
    out->aux = lanes_[index]->notices_brought().count;
    out->transfer = lanes_[index]->notices_brought().delivered;
  }
  return true;
}

void Peer::send_again_locked(const std::vector<ChunkWork>& works) {
  for (const ChunkWork& work : works) {
    TransferState& t = *work.transfer;
    if (!t.live || t.id != work.transfer_id) {
      loose_one_known_locked(t);
      continue;
    }
    --t.in_flight;
    ++t.retries;
    t.again.push_back(work.chunk);
    if (t.ending)
      progress_locked(work.transfer);
    else
      enqueue_locked(work.transfer);
  }
}

// It never left, so nothing has to be known about it, and another lane may have it.
void Peer::take_back_locked(const ChunkWork& work, uint32_t lane) {
  TransferState& t = *work.transfer;
  if (!t.live || t.id != work.transfer_id) return loose_one_known_locked(t);
  --t.in_flight;
  t.again.push_back(work.chunk);
  t.shares[lane].bytes -= t.plan.chunks[work.chunk].bytes;
  t.shares[lane].chunks -= 1;
  if (t.ending)
    progress_locked(work.transfer);
  else
    enqueue_locked(work.transfer);
}

void Peer::lane_lost(PeerLane& lane, const Status& status, UnconfirmedWrites writes,
                     std::vector<ChunkWork> reads) {
  bool last, up;
  Status why = status;
  {
    std::lock_guard lock(mu);
    // None is dealt to a lane that is no longer open.
    if (ChunkWork dealt; lane.take_dealt(&dealt)) take_back_locked(dealt, lane.index());
    if (refusal_stands_locked(now_ns())) why = refusal_;
    changed_.notify_all();
    if (state_ == State::kEnded) return;  // end() settles everything
    if (leaving_ && heard_every_bye_locked()) ask_end(peer_left());
    if (leaving_) return;
    last = live_lanes_locked() == 0;
    bool fatal = status.blast() == TCPX_BLAST_PEER;
    if (!last && !fatal) withdraw_refusal_locked(lane);
    // This lane may be what the others waited for.
    up = !last && !fatal && became_up_locked();
    if (!last && !fatal) {
      ++lanes_lost_;
      shared_.counters.lanes_lost.fetch_add(1);
      for (auto& transfer : live_) {
        ++transfer->lanes_lost;
        transfer->home = kAnyLane;
      }
      send_again_locked(reads);
      limbo_[lane.index()] = std::move(writes);
      // The same question again for every lane not yet confirmed, and our confirmations: they may
      // have been on this one.
      for (auto& [index, unconfirmed] : limbo_) ask_about_lane_locked(index);
      for (LaneBits again = confirmed_lanes_; !again.empty();)
        confirm_lane_locked(again.take_first());
      for (auto& [id, notice] : pending_notices_)
        if (notice->lane == lane.index()) send_notice_again_locked(notice);
      for (auto& other : lanes_)
        if (other && other->open()) other->wake();
    }
    last |= fatal;
  }
  if (status.code() == TCPX_PROTOCOL_ERROR) shared_.counters.protocol_errors.fetch_add(1);
  if (last) return ask_end(why);
  if (up) shared_.defer([self = shared_from_this()] { self->on_up_(); });
  shared_.log.warn("peer {} ({}): lane {} via {} lost: {}; going on with {} lanes", id_,
                   escaped(name()), lane.index(), lane.lane().interface(), status.to_string(),
                   live_lanes());
}

void Peer::ask_about_lane_locked(uint32_t index) {
  to_ask_about_.add(index);
  control_waiting_.store(true, std::memory_order_release);
}

void Peer::confirm_lane_locked(uint32_t index) {
  to_confirm_.add(index);
  control_waiting_.store(true, std::memory_order_release);
}

// A lane is lost once, and then asks once more about each one that is not confirmed yet.
Status Peer::hear_about_lane(const wire::Header& header) {
  constexpr uint32_t kMost = 2 * wire::kMaxLanes * wire::kMaxLanes;  // questions and answers
  if (heard_about_lanes_.fetch_add(1, std::memory_order_relaxed) >= kMost)
    return peer_error(TCPX_PROTOCOL_ERROR,
                      strf("more than {} questions and answers about lost lanes: no session of at "
                           "most {} lanes has so many",
                           kMost, wire::kMaxLanes));
  if (header.type == wire::FrameType::kLaneDown)
    lane_down_asked(header.chunk);
  else
    lane_down_confirmed(header.chunk, {header.aux, header.transfer});
  return {};
}

// The peer gave this lane up. Our end is closed before we confirm, so nothing more lands through
// it. Closing has to happen in that lane's loop, so the service thread does it, once: a peer that
// says it again is told again, by the lane that brought it.
void Peer::lane_down_asked(uint32_t index) {
  {
    std::lock_guard lock(mu);
    if (confirmed_lanes_.has(index)) return confirm_lane_locked(index);
    if (given_up_lanes_.has(index)) return;
    given_up_lanes_.add(index);
    to_close_.add(index);
  }
  shared_.defer(
      [self = shared_from_this()] { self->or_fail([&] { self->close_given_up_lanes(); }); });
}

// In its loop: nobody waits for a lane whose thread is busy.
void Peer::close_given_up_lanes() {
  LaneBits to_close;
  {
    std::lock_guard lock(mu);
    to_close = std::exchange(to_close_, {});
  }
  while (!to_close.empty()) {
    uint32_t index = to_close.take_first();
    PeerLane* lane = nullptr;
    LanesKept kept;
    {
      std::lock_guard lock(mu);
      if (index < lanes_.size()) lane = lanes_[index].get();
      kept = lanes_.keep();
    }
    if (lane == nullptr) {
      given_up_lane_closed(index);
      continue;
    }
    (void)lane->loop().ask([lane, index, keep = shared_from_this(), kept] {
      lane->shut(lane_error(TCPX_PEER_DISCONNECTED, "the peer gave this lane up"));
      keep->given_up_lane_closed(index);
    });
  }
}

void Peer::given_up_lane_closed(uint32_t index) {
  std::lock_guard lock(mu);
  confirmed_lanes_.add(index);
  confirm_lane_locked(index);
  if (PeerLane* carrier = lane_for_small_locked()) carrier->wake();
}

// A notification that was delivered has all its data before it: none of that may be sent again, the
// peer's application may have other plans for the memory by now.
void Peer::lane_down_confirmed(uint32_t index, const NoticesBrought& brought) {
  UnconfirmedWrites writes;  // what it keeps alive goes without the lock
  std::lock_guard lock(mu);
  auto found = limbo_.find(index);
  if (found == limbo_.end()) return;
  writes = std::move(found->second);
  limbo_.erase(found);
  uint64_t number = writes.notices_before;
  for (const NoticeBehind& notice : writes.notices) {
    bool delivered = brought.has(number++);
    TransferState& t = *notice.transfer;
    if (!t.live || t.id != notice.transfer_id) {
      loose_one_known_locked(t);
      continue;
    }
    if (delivered) settle_by_notice_locked(t, &writes.chunks);
    notice_behind_ended_locked(notice.transfer, delivered ? TCPX_OK : TCPX_BUSY);
  }
  send_again_locked(writes.chunks);
  for (auto& lane : lanes_)
    if (lane && lane->open()) lane->wake();
}

// What the peer sent before its goodbye, the last answers, is still to come on the other lanes: the
// session ends when they have said it too.
void Peer::peer_said_bye(PeerLane& lane) {
  std::lock_guard lock(mu);
  leaving_ = left_ = lane.heard_bye = true;
  if (heard_every_bye_locked()) ask_end(peer_left());
}

Status Peer::peer_left() {
  return peer_error(TCPX_PEER_CLOSED, "the peer said goodbye");
}

bool Peer::heard_every_bye_locked() const {
  return left_ && std::all_of(lanes_.begin(), lanes_.end(),
                              [](auto& lane) { return !lane || !lane->open() || lane->heard_bye; });
}

}  // namespace tcpx
