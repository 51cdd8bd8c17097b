#include "engine/peer.h"

#include <algorithm>

#include "base/text.h"

namespace tcpx {

namespace {

// A call into a plugin that takes longer than connect_timeout, at least this, hangs.
constexpr Nanos kLeastHangPatience = kSecond;

}  // namespace

Peer::Peer(EngineShared& shared, uint64_t id, bool came_to_us)
    : inbound(came_to_us), state_(shared, id), notices_in_(shared, id) {}

Peer::~Peer() = default;

// ---- the session begins ----------------------------------------------------------------------

void Peer::established(PeerIdentity identity, std::string name) {
  PeerLock lock(state_);
  identity_ = std::move(identity);
  lock->name = std::move(name);
  established_.store(true);
}

std::shared_ptr<SlotShare> Peer::slots_of(const Loop& loop) {
  for (auto& [of, share] : slots_)
    if (of == &loop) return share;
  return slots_.emplace_back(&loop, std::make_shared<SlotShare>()).second;
}

Status Peer::add_lane(uint32_t index, const LaneFactory& factory, const LaneTraits& traits) {
  PeerLane* lane;
  LanesKept kept;
  EngineShared& shared = state_.shared;
  // The engine's loops are not owned by those who use them.
  std::shared_ptr<Loop> loop(std::shared_ptr<Loop>(),
                             shared.loops[(id() + index) % shared.loops.size()].get());
  if (traits.own_loop()) {
    Loop::Settings settings;
    settings.spin = shared.options.spin;
    settings.own_thread_only = !traits.caller_may_drive;
    settings.movers = shared.movers;
    settings.mover_for = traits.busy_polls ? MoverFor::kBeside : MoverFor::kStreams;
    settings.hang_patience =
        std::clamp(shared.options.connect_timeout, kLeastHangPatience, settings.hang_patience);
    std::unique_ptr<Loop> made;
    if (Status status = Loop::create(settings, &made); !status) return status;
    loop = std::move(made);
  }
  {
    PeerLock lock(state_);
    if (lock->session.over()) return lock->session.end_status();
    if (lock->lanes.size() <= index) lock->lanes.resize(index + 1);
    if (lock->lanes[index] != nullptr)
      return lane_error(TCPX_PROTOCOL_ERROR, strf("lane {} exists already", index));
    if (lock->lost.is_given_up(index))
      return lane_error(TCPX_PEER_DISCONNECTED, strf("the peer gave lane {} up already", index));
    lock->lanes[index] = std::make_unique<PeerLane>(*this, index, std::move(loop), traits);
    lane = lock->lanes[index].get();
    lock->scheduler.add_lane(index, lane->load());
    kept = lock->lanes.keep();
  }
  Status status = lane->start(factory);
  if (!status) (void)lane->stop_loop(kNever);
  return status;
}

void Peer::expect_lanes(uint32_t lanes) {
  PeerLock lock(state_);
  expected_lanes_ = lanes;
}

bool Peer::may_join(uint32_t index) {
  PeerLock lock(state_);
  const LaneSet& lanes = lock->lanes;
  return !lock->session.over() && index > 0 && index < expected_lanes_ &&
         (index >= lanes.size() || lanes[index] == nullptr) && !lock->lost.is_given_up(index);
}

void Peer::connected(std::function<void()> on_up, std::string note) {
  {
    PeerLock lock(state_);
    notes_.connect = std::move(note);
    lock->session.lanes_are_made();
    on_up_ = std::move(on_up);
    if (!came_up(lock)) return;
  }
  on_up_();
}

bool Peer::came_up(PeerLock& lock) {
  const bool settled = std::all_of(lock->lanes.begin(), lock->lanes.end(), [](auto& lane) {
    return !lane || !lane->open() || lane->settled();
  });
  if (!lock->session.come_up(settled)) return false;
  transfers_.session_came_up(lock, epochs_.of_peer());
  lock.tell_changed();
  lock.wake_all();
  return true;
}

void Peer::tell_up_later() {
  state_.shared.defer([self = shared_from_this()] { self->on_up_(); });
}

void Peer::lane_settled(PeerLane& lane, const PathRefusal& refusal) {
  bool up = false;
  {
    PeerLock lock(state_);
    if (!refusal.none() && notes_.path.empty()) notes_.path = refusal.status.text();
    if (!refusal.none() && !state_.shared.path_wish.accepts_stream())
      lock->session.refuse(
          {lane.index(),
           {peer_error(TCPX_PATH_UNAVAILABLE,
                       strf("{}, but lane {} cannot have it: {}", state_.shared.path_wish.text(),
                            lane.index(), refusal.status.text())),
            refusal.in_doubt},
           now_ns()});
    up = came_up(lock);
  }
  if (up) tell_up_later();
}

Status Peer::wait_connected(Nanos deadline) {
  PeerLock lock(state_);
  auto undecided = [&] { return !lock->session.was_up() && !lock->session.over(); };
  lock.wait_changed(deadline, [&] { return !undecided(); });
  if (undecided()) return Status::in_progress();
  return lock->session.over() ? lock->session.end_status() : Status();
}

// ---- it goes on ------------------------------------------------------------------------------

void Peer::tick(Nanos now) {
  if (!ending_.tick(now)) watch_.tick(now);
}

bool Peer::hangs(Nanos now) {
  for (PeerLane* lane : lanes())
    if (lane->traits().may_hang && !lane->is_shut() && lane->loop().hangs(now)) return true;
  return false;
}

// ---- facts -----------------------------------------------------------------------------------

Session::State Peer::state() {
  PeerLock lock(state_);
  return lock->session.state();
}

bool Peer::over() {
  PeerLock lock(state_);
  return lock->session.over();
}

std::string Peer::name() {
  PeerLock lock(state_);
  return lock->name;
}

Status Peer::end_status() {
  PeerLock lock(state_);
  return lock->session.end_status();
}

LaneList Peer::lanes() {
  PeerLock lock(state_);
  return lock.started_lanes();
}

uint32_t Peer::live_lanes() {
  PeerLock lock(state_);
  return lock->scheduler.open_lanes().count();
}

Peer::Notes Peer::notes() {
  PeerLock lock(state_);
  return notes_;
}

std::vector<LaneReport> Peer::lane_reports() {
  std::vector<LaneReport> out;
  LaneList all;
  {
    PeerLock lock(state_);
    if (auto* past = ending_.past_lanes(lock)) return *past;
    all = lock.started_lanes();
  }
  for (PeerLane* lane : all) out.push_back(report_of(*lane));
  return out;
}

}  // namespace tcpx
