// A peer's session: its lanes from the first to the last, and what is known about it. The rest of
// Peer: peer_transfers.cc, peer_fences.cc, peer_notices.cc, peer_lost_lanes.cc, peer_watch.cc,
// peer_epochs.cc.
#include "engine/peer.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "base/text.h"
#include "base/wait.h"

namespace tcpx {

namespace {

// A call into a plugin that takes longer than connect_timeout, at least this, hangs.
constexpr Nanos kLeastHangPatience = kSecond;
constexpr std::chrono::milliseconds kLookEvery{5};

Status with_blast(const Status& status, tcpx_blast blast) {
  return Status(status.code(), blast, status.text());
}

}  // namespace

Peer::Peer(EngineShared& shared, uint64_t id, bool came_to_us)
    : inbound(came_to_us),
      shared_(shared),
      id_(id),
      inbox_share_(std::make_shared<InboxShare>(id)) {
  run_queue_.reserve(64);
  live_.reserve(64);
}

Peer::~Peer() = default;

// ---- session -------------------------------------------------------------------------------

void Peer::established(const wire::Uid& uid, std::string name, uint64_t session,
                       uint64_t chunk_bytes, uint32_t window, const auth::Key& session_key) {
  std::lock_guard lock(mu);
  uid_ = uid;
  name_ = std::move(name);
  session_.store(session);
  chunk_bytes_ = chunk_bytes;
  window_ = window;
  session_key_ = session_key;
  uid_known_.store(true);
}

Status Peer::add_lane(uint32_t index, const LaneFactory& factory, bool own_loop) {
  PeerLane* lane;
  LanesKept kept;
  // The engine's loops are not owned by those who use them.
  std::shared_ptr<Loop> loop(std::shared_ptr<Loop>(),
                             shared_.loops[(id_ + index) % shared_.loops.size()].get());
  if (own_loop) {
    Loop::Settings settings;
    settings.spin = shared_.options.spin;
    settings.own_thread_only = true;
    settings.movers = shared_.movers;
    settings.hang_patience =
        std::clamp(shared_.options.connect_timeout, kLeastHangPatience, settings.hang_patience);
    std::unique_ptr<Loop> made;
    if (Status status = Loop::create(settings, &made); !status) return status;
    loop = std::move(made);
  }
  {
    std::lock_guard lock(mu);
    if (state_ == State::kEnded) return end_status_;
    if (lanes_.size() <= index) lanes_.resize(index + 1);
    if (lanes_[index] != nullptr)
      return lane_error(TCPX_PROTOCOL_ERROR, strf("lane {} exists already", index));
    if (given_up_lanes_.has(index))
      return lane_error(TCPX_PEER_DISCONNECTED, strf("the peer gave lane {} up already", index));
    lanes_[index] = std::make_unique<PeerLane>(*this, index, std::move(loop), own_loop);
    lane = lanes_[index].get();
    kept = lanes_.keep();
  }
  Status status = lane->start(factory);
  if (!status) (void)lane->stop_loop(kNever);
  return status;
}

void Peer::expect_lanes(uint32_t lanes) {
  std::lock_guard lock(mu);
  expected_lanes_ = lanes;
}

bool Peer::may_join(uint32_t index) {
  std::lock_guard lock(mu);
  return state_ != State::kEnded && index > 0 && index < expected_lanes_ &&
         (index >= lanes_.size() || lanes_[index] == nullptr) && !given_up_lanes_.has(index);
}

void Peer::connected(std::function<void()> on_up) {
  {
    std::lock_guard lock(mu);
    connecting_done_ = true;
    on_up_ = std::move(on_up);
    if (!became_up_locked()) return;
  }
  on_up_();
}

bool Peer::became_up_locked() {
  if (state_ != State::kConnecting || !connecting_done_ || !refusal_.ok()) return false;
  for (auto& lane : lanes_)
    if (lane && lane->open() && !lane->settled()) return false;
  state_ = State::kUp;
  // Posted when nothing could be known: they count from now.
  for (auto& transfer : live_) transfer->epoch = epoch_of_peer_.load();
  changed_.notify_all();
  for (auto& lane : lanes_)
    if (lane && lane->open()) lane->wake();
  return true;
}

void Peer::lane_settled(PeerLane& lane, const Status& status) {
  bool refused = !status.ok() && shared_.options.require_path == "net";
  bool up = false;
  {
    std::lock_guard lock(mu);
    if (!status.ok() && path_note_.empty()) path_note_ = status.text();
    if (refused) {
      lane.path_refusal = status;
      take_refusal_locked(lane);
    }
    up = became_up_locked();
  }
  if (up) shared_.defer([self = shared_from_this()] { self->on_up_(); });
}

void Peer::take_refusal_locked(const PeerLane& lane) {
  bool certain = lane.path_refusal.code() != TCPX_PEER_DISCONNECTED;
  if (!refusal_.ok() && (refusal_is_certain_ || !certain)) return;
  refusal_is_certain_ = certain;
  refusal_lane_ = lane.index();
  refusal_ =
      peer_error(TCPX_PATH_UNAVAILABLE, strf("require_path is net, but lane {} cannot have it: {}",
                                             lane.index(), lane.path_refusal.text()));
  refused_at_ = now_ns();
}

// The lane is lost, and what looked like a refusal was the first sign of it. Another one may have
// shown the same.
void Peer::withdraw_refusal_locked(const PeerLane& lost) {
  if (refusal_.ok() || refusal_is_certain_ || refusal_lane_ != lost.index()) return;
  refusal_ = {};
  for (auto& lane : lanes_)
    if (lane && lane.get() != &lost && lane->open() && !lane->path_refusal.ok())
      take_refusal_locked(*lane);
}

Status Peer::wait_connected(Nanos deadline) {
  std::unique_lock<std::mutex> lock(mu);
  wait_until(changed_, lock, deadline, [&] { return state_ != State::kConnecting; });
  if (state_ == State::kUp) return {};
  return state_ == State::kEnded ? end_status_ : Status::in_progress();
}

void Peer::ask_end(const Status& status) noexcept {
  if (end_asked_.exchange(true)) return;
  or_fail([&] { shared_.defer([self = shared_from_this(), status] { self->end(status); }); });
}

void Peer::fail(tcpx_code code) noexcept {
  failure_.store(code);
  shared_.hurry();
}

// Lanes are asked here, and the rest is advance_end: what cannot be done for want of memory is done
// with a later tick.
void Peer::end(const Status& status) noexcept {
  or_fail([&] {
    Status ended = with_blast(status, TCPX_BLAST_PEER);
    LaneList all;
    {
      std::lock_guard lock(mu);
      bool failed_before = failure_.exchange(TCPX_OK) != TCPX_OK;
      if (state_ == State::kEnded && !failed_before) return;
      if (state_ != State::kEnded) {
        state_ = State::kEnded;
        end_status_ = std::move(ended);
      }
      all = LaneList(lanes_.keep());
      for (auto& lane : lanes_)
        if (lane && !lane->is_shut()) all.add(lane.get());
      changed_.notify_all();
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

// In a loop: a lane was closed because the session ends.
void Peer::lane_shut() {
  std::lock_guard lock(mu);
  changed_.notify_all();
  bool last = std::all_of(lanes_.begin(), lanes_.end(),
                          [](auto& lane) { return !lane || lane->is_shut(); });
  if (last && !end_done_)
    shared_.defer([self = shared_from_this()] { (void)self->advance_end(now_ns()); });
}

// Transfers end when all lanes are closed, and nothing touches their memory any more; or when all
// that is left of the lanes hangs in a plugin. Whether they have.
bool Peer::advance_end(Nanos now) {
  std::lock_guard lock(mu);
  if (end_done_ || state_ != State::kEnded) return end_done_;
  bool held = false, waiting = false;
  for (auto& lane : lanes_) {  // all: who hangs is seen by looking
    if (!lane || lane->is_shut()) continue;
    (lane->loop().hangs(now) || lane->moves_hang(now) ? held : waiting) = true;
  }
  if (waiting) return false;
  while (!live_.empty()) {
    std::shared_ptr<TransferState> transfer = live_.back();
    transfer->held |= held;
    if (transfer->status.ok()) transfer->status = end_status_;
    finish_locked(*transfer, transfer->status.code());
  }
  run_queue_.clear();
  limbo_.clear();
  notices_.clear();
  if (size_t lost = lone_notices_locked(); lost > 0)
    shared_.log.warn(
        "peer {} ({}): {} notifications that nobody waits for may not have arrived: {}", id_,
        escaped(name_), lost, end_status_.text());
  for (auto& [id, notice] : pending_notices_) {
    notice->status = end_status_;
    notice->confirmed = true;
    notice->ended.notify_all();
  }
  pending_notices_.clear();
  shared_.counters.peers_lost.fetch_add(1);
  end_done_ = true;
  changed_.notify_all();
  return true;
}

bool Peer::ended_wholly() {
  std::lock_guard lock(mu);
  return end_done_;
}

bool Peer::dismantle(Nanos patience) {
  LaneList all;
  {
    std::lock_guard lock(mu);
    if (dismantled_ || !end_done_) return dismantled_;
    all = LaneList(lanes_.keep());
    for (auto& lane : lanes_)
      if (lane) all.add(lane.get());
  }
  for (PeerLane* lane : all)
    if (!lane->is_shut() || !lane->stop_loop(patience)) return false;
  std::vector<LaneReport> reports = lane_reports();
  std::lock_guard lock(mu);
  if (dismantled_) return true;
  past_lanes_ = std::move(reports);
  lanes_.let_go();
  to_ask_about_ = to_confirm_ = {};
  notices_seen_ = {};
  confirmed_lanes_ = {};
  run_queue_ = {};
  live_ = {};
  dismantled_ = true;
  return true;
}

bool Peer::dismantled() {
  std::lock_guard lock(mu);
  return dismantled_;
}

size_t Peer::lanes_not_shut() {
  std::lock_guard lock(mu);
  return static_cast<size_t>(std::count_if(lanes_.begin(), lanes_.end(),
                                           [](auto& lane) { return lane && !lane->is_shut(); }));
}

void Peer::say_goodbye(const Status& status, Nanos patience) {
  end_transfers(status);
  say_last_words(now_ns() + patience);
  send_byes();
  await_their_close(now_ns() + patience);
  end(status);
  await_end();
}

// As long as plugins may hang, no longer.
void Peer::await_end() {
  while (!advance_end(now_ns())) {
    std::unique_lock<std::mutex> lock(mu);
    changed_.wait_for(lock, kLookEvery);
  }
}

void Peer::end_transfers(const Status& status) {
  std::vector<std::shared_ptr<TransferState>> running;
  {
    std::lock_guard lock(mu);
    running = live_;
  }
  for (auto& transfer : running) end_now(transfer, with_blast(status, TCPX_BLAST_TRANSFER));
}

// Notifications that nobody waits for are on their way, or will be when the lanes are there.
void Peer::say_last_words(Nanos deadline) {
  std::unique_lock<std::mutex> lock(mu);
  wait_until(changed_, lock, deadline,
             [&] { return pending_notices_.empty() || state_ == State::kEnded; });
}

void Peer::send_byes() {
  LaneList open;
  {
    std::lock_guard lock(mu);
    leaving_ = true;
    open = LaneList(lanes_.keep());
    for (auto& lane : lanes_)
      if (lane && lane->open()) open.add(lane.get());
  }
  for (PeerLane* lane : open)
    lane->in_loop([lane, keep = shared_from_this()] { lane->send_bye(); });
}

// The peer closes when it has seen the goodbye; our close then cannot destroy it in flight.
void Peer::await_their_close(Nanos deadline) {
  std::unique_lock<std::mutex> lock(mu);
  wait_until(changed_, lock, deadline,
             [&] { return live_lanes_locked() == 0 || state_ == State::kEnded; });
}

// ---- facts ---------------------------------------------------------------------------------

Peer::State Peer::state() {
  std::lock_guard lock(mu);
  return state_;
}

std::string Peer::name() {
  std::lock_guard lock(mu);
  return name_;
}

Status Peer::end_status() {
  std::lock_guard lock(mu);
  return end_status_;
}

LaneList Peer::lanes() {
  std::lock_guard lock(mu);
  return lanes_locked();
}

LaneList Peer::lanes_locked() const {
  LaneList out(lanes_.keep());
  for (auto& lane : lanes_)
    if (lane && lane->started()) out.add(lane.get());
  return out;
}

uint32_t Peer::live_lanes_locked() const {
  return static_cast<uint32_t>(
      std::count_if(lanes_.begin(), lanes_.end(), [](auto& lane) { return lane && lane->open(); }));
}

uint32_t Peer::live_lanes() {
  std::lock_guard lock(mu);
  return live_lanes_locked();
}

std::string Peer::path() {
  std::set<std::string> paths;
  for (const LaneReport& lane : lane_reports()) paths.insert(lane.path);
  return join(paths, "+");
}

std::vector<LaneReport> Peer::lane_reports() {
  std::vector<LaneReport> out;
  LaneList all;
  {
    std::lock_guard lock(mu);
    if (dismantled_) return past_lanes_;
    all = lanes_locked();
  }
  for (PeerLane* lane : all) out.push_back(report_of(*lane));
  return out;
}

std::string Peer::interfaces() {
  std::set<std::string> names;
  for (PeerLane* lane : lanes())
    if (lane->open()) names.insert(lane->lane().interface());
  return join(names, ",");
}

}  // namespace tcpx
