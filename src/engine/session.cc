#include "engine/session.h"

#include <algorithm>

namespace tcpx {

namespace {

// Where the kernel closes the stream of a peer that died with its comms, that takes this long at
// most. Who knows better waits longer before it closes: the other side must not take that for a
// death.
constexpr Nanos kStreamFollows = 50 * kMilli;
constexpr Nanos kOtherSideKnows = 100 * kMilli;
static_assert(kOtherSideKnows > kStreamFollows);

}  // namespace

bool Session::come_up(bool lanes_settled) {
  if (!connecting() || !lanes_made_ || !lanes_settled) return false;
  state_.step(State::kUp);
  return was_up_ = true;
}

// ---- refused -------------------------------------------------------------------------------

void Session::refuse(LaneRefusal refusal) {
  if (over() || leaving()) return;
  refusals_.push_back(std::move(refusal));
  if (!(state_ == State::kRefused)) state_.step(State::kRefused);
}

void Session::lane_lost(uint32_t lane) {
  const bool were = !refusals_.empty();
  std::erase_if(refusals_,
                [lane](const LaneRefusal& r) { return r.lane == lane && r.why.in_doubt; });
  if (were && refusals_.empty() && state_ == State::kRefused)
    state_.step(was_up_ ? State::kUp : State::kConnecting);
}

// One that is certain counts before those in doubt.
const LaneRefusal* Session::refusal() const {
  auto certain = std::find_if(refusals_.begin(), refusals_.end(),
                              [](const LaneRefusal& r) { return !r.why.in_doubt; });
  if (certain != refusals_.end()) return &*certain;
  return refusals_.empty() ? nullptr : &refusals_.front();
}

const LaneRefusal* Session::refusal_due(Nanos now) const {
  const LaneRefusal* refused = refusal();
  if (refused == nullptr || over()) return nullptr;
  return now - refused->since >= (refused->why.in_doubt ? kStreamFollows : kOtherSideKnows)
             ? refused
             : nullptr;
}

const LaneRefusal* Session::refusal_stands(Nanos now) const {
  const LaneRefusal* refused = refusal();
  if (refused == nullptr) return nullptr;
  return !refused->why.in_doubt || now - refused->since >= kStreamFollows ? refused : nullptr;
}

// ---- leaving, and the end --------------------------------------------------------------------

void Session::leave() {
  if (!over() && !leaving()) state_.step(State::kLeaving);
}

void Session::peer_said_bye(uint32_t lane) {
  leave();
  peer_left_ = true;
  byes_.add(lane);
}

bool Session::begin_end(Status status) {
  if (over()) return false;
  end_status_ = std::move(status);
  state_.step(State::kEnding);
  return true;
}

}  // namespace tcpx
