#include "engine/peer.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/text.h"

namespace tcpx {

namespace {

// A call into a plugin that takes longer than connect_timeout, at least this, hangs.
constexpr Nanos kLeastHangPatience = kSecond;
constexpr Nanos kLookEvery = 5 * kMilli;

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

// The other side knows by now, or will before it can post anything.
void Peer::start_epochs(uint64_t of_peer, uint64_t ours) {
  hear_epoch(of_peer);
  epoch_was_heard(ours);
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

// ---- epochs ----------------------------------------------------------------------------------

void Peer::epoch_was_heard(uint64_t ours) {
  if (!epochs_.was_heard(ours)) return;
  PeerLock lock(state_);
  lock.tell_changed();
}

// On every lane: one of them may be full of data, or about to be lost.
void Peer::tell_epoch() {
  PeerLock lock(state_);
  lock.wake_all();
}

// Without it nothing goes wrong: what such a peer posts before it has heard is refused.
void Peer::await_epoch_heard(uint64_t epoch, Nanos deadline) {
  PeerLock lock(state_);
  auto answered = [&](uint64_t one) { return epochs_.answered() >= one; };
  auto gone = [&] { return lock->session.over() || lock->scheduler.open_lanes().empty(); };
  if (!answered(epoch_due_)) return;
  lock.wait_changed(deadline, [&] { return answered(epoch) || gone(); });
  if (!answered(epoch) && !gone()) epoch_due_ = epoch;
}

// ---- it ends -----------------------------------------------------------------------------------

Status Peer::left() {
  return peer_error(TCPX_PEER_CLOSED, "the peer said goodbye");
}

// What the peer sent before its goodbye, the last answers, is still to come on the other lanes: the
// session ends when they have said it too.
void Peer::lane_said_bye(PeerLane& lane) {
  PeerLock lock(state_);
  lock->session.peer_said_bye(lane.index());
  if (lock->session.said_every_bye(lock->scheduler.open_lanes())) ask_end(left());
}

void Peer::ask_end(const Status& status) noexcept {
  if (end_asked_.exchange(true)) return;
  or_fail([&] { state_.shared.defer([self = shared_from_this(), status] { self->end(status); }); });
}

void Peer::fail(tcpx_code code) noexcept {
  failure_.store(code);
  state_.shared.hurry();
}

// Whether there was something to end, or to go on ending.
bool Peer::end_failed() {
  tcpx_code code = failure_.load();
  if (code == TCPX_OK) return false;
  end(peer_error(code, code == TCPX_NO_MEMORY ? "out of memory" : "internal error"));
  return true;
}

// Lanes are asked here, and the rest is advance_end: what cannot be done for want of memory is done
// with a later tick.
void Peer::end(const Status& status) noexcept {
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
    (void)advance_end(now_ns());
  });
}

void Peer::end_for_good(const Status& status) noexcept {
  auto until = [](auto&& done) {
    while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  until([&] {
    end(status);
    return failure_.load() == TCPX_OK;
  });
  until([&] { return quietly([&] { await_end(); }); });
}

namespace {

bool every_lane_is_shut(const PeerLock& lock) {
  return std::all_of(lock->lanes.begin(), lock->lanes.end(),
                     [](auto& lane) { return !lane || lane->is_shut(); });
}

}  // namespace

// In a loop: a lane was closed because the session ends.
void Peer::lane_shut() {
  PeerLock lock(state_);
  lock.tell_changed();
  if (every_lane_is_shut(lock) && !lock->session.ended())
    state_.shared.defer([self = shared_from_this()] { (void)self->advance_end(now_ns()); });
}

// Transfers end when all lanes are closed, and nothing touches their memory any more; or when all
// that is left of the lanes hangs in a plugin. Whether they have.
bool Peer::advance_end(Nanos now) {
  PeerLock lock(state_);
  if (!lock->session.over() || lock->session.ended()) return lock->session.ended();
  bool held = false, waiting = false;
  for (auto& lane : lock->lanes) {  // all: who hangs is seen by looking
    if (!lane || lane->is_shut()) continue;
    (lane->loop().hangs(now) || lane->moves_hang(now) ? held : waiting) = true;
  }
  if (waiting) return false;
  transfers_.end_all(lock, held);
  notices_.end_all(lock);
  lock->lost.forget_all();
  state_.shared.counters.peers_lost.fetch_add(1);
  lock->session.end();
  lock.tell_changed();
  return true;
}

// As long as plugins may hang, no longer: that one hangs is told by the clock alone.
void Peer::await_end() {
  while (!advance_end(now_ns())) {
    PeerLock lock(state_);
    lock.wait_changed(now_ns() + kLookEvery,
                      [&] { return lock->session.over() && every_lane_is_shut(lock); });
  }
}

bool Peer::ended_wholly() {
  PeerLock lock(state_);
  return lock->session.ended();
}

bool Peer::dismantle(Nanos patience) {
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
  std::vector<LaneReport> reports = lane_reports();
  PeerLock lock(state_);
  if (dismantled_) return true;
  past_lanes_ = std::move(reports);
  lock->scheduler.forget_lanes();
  lock->lanes.let_go();
  lock->live = {};
  dismantled_ = true;
  return true;
}

bool Peer::dismantled() {
  PeerLock lock(state_);
  return dismantled_;
}

size_t Peer::lanes_not_shut() {
  PeerLock lock(state_);
  return static_cast<size_t>(std::count_if(lock->lanes.begin(), lock->lanes.end(),
                                           [](auto& lane) { return lane && !lane->is_shut(); }));
}

bool Peer::hangs(Nanos now) {
  for (PeerLane* lane : lanes())
    if (lane->traits().may_hang && !lane->is_shut() && lane->loop().hangs(now)) return true;
  return false;
}

void Peer::tick(Nanos now) {
  if (end_failed()) return;
  if (!over()) return watch_.tick(now);
  if (advance_end(now)) (void)dismantle(0);
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
    if (dismantled_) return past_lanes_;
    all = lock.started_lanes();
  }
  for (PeerLane* lane : all) out.push_back(report_of(*lane));
  return out;
}

}  // namespace tcpx
