#include "engine/peer.h"

#include <algorithm>

#include "base/text.h"
#include "base/wait.h"
#include "engine/notice_queue.h"

namespace tcpx {

namespace {

// How much of a transfer tcpx_post sends on the caller's thread before it leaves the rest to the
// loop: enough for everything small, and well below a millisecond.
constexpr uint64_t kPostBudget = 1u << 20;
// A call into a plugin that takes longer than connect_timeout, at least this, hangs.
constexpr Nanos kLeastHangPatience = kSecond;
// How long the service thread waits for a lane's thread, which may be in a plugin's call.
constexpr Nanos kServicePatience = 100 * kMilli;
// From here on sending takes longer than the two system calls that keep the loop's thread asleep.
constexpr uint64_t kLongPost = 64u << 10;

// A transfer shorter than this stays on one lane where another lane would have to take its core
// from the first one, or from the peer. Two cores, 1 MiB: one lane 6.9 GB/s, two lanes 3.5.
constexpr Nanos kWorthAnotherLane = 2 * kMilli;

Status with_blast(const Status& status, tcpx_blast blast) {
  return Status(status.code(), blast, status.text());
}

}  // namespace

Peer::Peer(EngineShared& shared, uint64_t id) : shared_(shared), id_(id) {
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
  // The engine's loops are not owned by those who use them.
  std::shared_ptr<Loop> loop(std::shared_ptr<Loop>(),
                             shared_.loops[(id_ + index) % shared_.loops.size()].get());
  if (own_loop) {
    Loop::Settings settings;
    settings.spin = shared_.options.spin;
    settings.own_thread_only = true;
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
    lanes_[index] = std::make_unique<PeerLane>(*this, index, std::move(loop), own_loop);
    lane = lanes_[index].get();
  }
  if (Status status = lane->start(factory); !status) return status;
  Status ended;
  {
    std::lock_guard lock(mu);
    if (state_ != State::kEnded) return {};
    ended = end_status_;
  }
  // end() ran while the lane was being made and did not see it open.
  lane->in_loop([lane, ended, keep = shared_from_this()] { lane->lane().close(ended); });
  lane->retire_loop();
  return ended;
}

void Peer::expect_lanes(uint32_t lanes) {
  std::lock_guard lock(mu);
  expected_lanes_ = lanes;
}

bool Peer::may_join(uint32_t index) {
  std::lock_guard lock(mu);
  return state_ != State::kEnded && index > 0 && index < expected_lanes_ &&
         (index >= lanes_.size() || lanes_[index] == nullptr);
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
  if (state_ != State::kConnecting || !connecting_done_ || refused_) return false;
  for (auto& lane : lanes_)
    if (lane && lane->open() && !lane->settled()) return false;
  state_ = State::kUp;
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
    refused_ |= refused;
    up = became_up_locked();
  }
  if (refused)
    return ask_end(peer_error(
        TCPX_PATH_UNAVAILABLE,
        strf("require_path is net, but lane {} cannot have it: {}", lane.index(), status.text())));
  if (up) shared_.defer([self = shared_from_this()] { self->on_up_(); });
}

Status Peer::wait_connected(Nanos deadline) {
  std::unique_lock lock(mu);
  wait_until(changed_, lock, deadline, [&] { return state_ != State::kConnecting; });
  if (state_ == State::kUp) return {};
  return state_ == State::kEnded ? end_status_ : Status::in_progress();
}

void Peer::ask_end(const Status& status) {
  shared_.defer([self = shared_from_this(), status] { self->end(status); });
}

void Peer::end(const Status& status) {
  LaneList open, all;
  {
    std::lock_guard lock(mu);
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    end_status_ = with_blast(status, TCPX_BLAST_PEER);
    for (auto& lane : lanes_) {
      if (lane) all.add(lane.get());
      if (lane && lane->open()) open.add(lane.get());
    }
    changed_.notify_all();
  }
  // Lanes first: when the transfers end, nothing touches their memory any more.
  for (PeerLane* lane : open)
    lane->in_loop([lane, status, keep = shared_from_this()] { lane->lane().close(status); });
  bool held = false;
  for (PeerLane* lane : all) {
    lane->retire_loop();
    held |= lane->has_own_loop() && lane->loop().hangs(now_ns());
  }
  std::lock_guard lock(mu);
  while (!live_.empty()) {
    std::shared_ptr<TransferState> transfer = live_.back();
    transfer->held |= held;
    if (transfer->status.ok()) transfer->status = end_status_;
    finish_locked(*transfer, transfer->status.code());
  }
  run_queue_.clear();
  limbo_.clear();
  notices_.clear();
  for (auto& [id, notice] : pending_notices_) {
    notice->confirmed = true;
    notice->status = end_status_;
    notice->ended.notify_all();
  }
  pending_notices_.clear();
  shared_.counters.peers_lost.fetch_add(1);
}

void Peer::say_goodbye(const Status& status, Nanos patience) {
  std::vector<std::shared_ptr<TransferState>> running;
  LaneList open;
  {
    std::lock_guard lock(mu);
    leaving_ = true;
    running = live_;
    for (auto& lane : lanes_)
      if (lane && lane->open()) open.add(lane.get());
  }
  for (auto& transfer : running) end_now(transfer, with_blast(status, TCPX_BLAST_TRANSFER));
  for (PeerLane* lane : open)
    lane->in_loop([lane, keep = shared_from_this()] { lane->send_bye(); });
  {
    // The peer closes when it has seen the goodbye; our close then cannot destroy it in flight.
    std::unique_lock lock(mu);
    wait_until(changed_, lock, deadline_after(now_ns(), patience),
               [&] { return live_lanes_locked() == 0 || state_ == State::kEnded; });
  }
  end(status);
}

// ---- posting and waiting -------------------------------------------------------------------

Status Peer::post(const std::shared_ptr<TransferState>& transfer, std::shared_ptr<Notice> notice,
                  Nanos deadline) {
  PeerLane* small = nullptr;
  bool spread = false;
  {
    std::lock_guard lock(mu);
    if (state_ == State::kEnded) return end_status_;
    if (transfer->live)
      return bad_call(TCPX_BUSY, "the transfer is in progress; wait for it or cancel it first");
    // Under the lock that deregister takes after retiring the id: either it finds this transfer
    // among the live ones, or we find the id retired here.
    for (uint64_t region : transfer->plan.local_regions)
      if (!shared_.regions.is_live(region))
        return bad_call(TCPX_REGION_REVOKED,
                        strf("local region {:#x} was deregistered; prepare the transfer "
                             "anew",
                             region));
    TransferState& t = *transfer;
    t.id = next_transfer_id_++;
    t.home = kAnyLane;
    t.next_chunk = t.in_flight = t.settled = 0;
    t.again.clear();
    t.ending = t.held = false;
    t.status = {};
    t.deadline = deadline;
    t.notice = std::move(notice);
    t.posted_at = now_ns();
    t.first_out = t.last_settled = t.notice_out = t.ended_at = 0;
    t.retries = t.staging_bytes = 0;
    t.lanes_lost = 0;
    std::fill(t.shares.begin(), t.shares.end(), LaneShare{});
    t.live = true;
    t.live_at = live_.size();
    live_.push_back(transfer);
    t.code.store(TCPX_IN_PROGRESS, std::memory_order_release);
    enqueue_locked(transfer);
    shared_.counters.transfers_posted.fetch_add(1, std::memory_order_relaxed);
    if (state_ == State::kUp) small = lane_for_small_locked();
    if (small != nullptr && stays_on_one_lane_locked(t, *small)) t.home = small->index();
    spread = t.plan.chunks.size() > 1 && t.home == kAnyLane;
  }
  if (small != nullptr) start(*small, spread, transfer->plan.bytes >= kLongPost);
  return {};
}

// Lanes on different interfaces always add up. Lanes on one interface add cores, if there are any:
// with more loops at work than may spin, they and the peer's take turns on the same ones.
bool Peer::stays_on_one_lane_locked(const TransferState& transfer, const PeerLane& first) const {
  if (transfer.plan.chunks.size() < 2 || !shared_.options.adaptive_striping) return false;
  if (!shared_.crowded_by(std::min(lanes_.size(), shared_.loops.size()))) return false;
  for (auto& lane : lanes_)
    if (lane && lane->open() && lane->rail() != first.rail()) return false;
  double rate = first.rate();  // bytes per ns
  return rate > 0 && static_cast<double>(transfer.plan.bytes) < rate * kWorthAnotherLane;
}

// Sends on this thread if the loop is free: no thread switch before the first byte. Lanes of
// other loops, and what is left, are woken.
void Peer::start(PeerLane& first, bool spread, bool is_long) {
  LaneList all;
  if (spread) all = lanes();
  Loop* here = &first.loop();
  for (PeerLane* lane : all)  // before this thread is busy sending
    if (lane->open() && &lane->loop() != here) lane->wake();
  auto send = [&] {
    first.lane().flush(kPostBudget);
    for (PeerLane* lane : all)
      if (lane != &first && lane->open() && &lane->loop() == here) lane->lane().flush(kPostBudget);
  };
  bool sent = is_long ? here->try_exclusive_long(send) : here->try_exclusive(send);
  if (sent) return;
  first.wake();
  for (PeerLane* lane : all)
    if (lane->open() && &lane->loop() == here) lane->wake();
}

void Peer::enqueue_locked(const std::shared_ptr<TransferState>& transfer) {
  if (transfer->queued || !transfer->has_work()) return;
  transfer->queued = true;
  run_queue_.push_back(transfer);
}

// The open lane with the fewest chunks outstanding; round robin keeps its own order.
PeerLane* Peer::lane_for_small_locked() {
  if (!shared_.options.adaptive_striping && next_round_robin_ < lanes_.size()) {
    PeerLane* lane = lanes_[next_round_robin_].get();
    if (lane && lane->open()) return lane;
  }
  PeerLane* best = nullptr;
  for (auto& lane : lanes_)
    if (lane && lane->open() && (best == nullptr || lane->in_flight() < best->in_flight()))
      best = lane.get();
  return best;
}

// A caller makes the progress of the lane that carries its transfer, or of the first one.
PeerLane* Peer::lane_to_drive_locked(const TransferState& transfer) const {
  if (transfer.home < lanes_.size() && lanes_[transfer.home] && lanes_[transfer.home]->open())
    return lanes_[transfer.home].get();
  for (auto& lane : lanes_)
    if (lane && lane->open()) return lane.get();
  return nullptr;
}

void Peer::poll(TransferState& transfer) {
  PeerLane* lane = nullptr;
  {
    std::lock_guard lock(mu);
    if (!transfer.live) return;
    lane = lane_to_drive_locked(transfer);
  }
  if (lane != nullptr) lane->loop().poll();
}

void Peer::wait(TransferState& transfer, Nanos deadline) {
  auto stop = [&] { return !transfer.in_progress(); };
  while (!stop()) {
    Nanos now = now_ns();
    if (now >= deadline) return;
    Loop* loop = nullptr;
    {
      std::lock_guard lock(mu);
      if (PeerLane* lane = lane_to_drive_locked(transfer)) loop = &lane->loop();
      transfer.driving.store(loop);
    }
    if (loop != nullptr && loop->drive_until(stop, deadline)) {
      transfer.driving.store(nullptr);
      continue;
    }
    // Someone else makes the progress, or there is no lane yet. Look again from time to time:
    // whoever drives may stop driving.
    transfer.driving.store(nullptr);
    std::unique_lock lock(mu);
    ++transfer.waiters;
    Nanos look_again = std::min(deadline, now_ns() + 20 * kMilli);
    wait_until(transfer.ended, lock, look_again, stop);
    --transfer.waiters;
  }
}

// ---- the way of a chunk (from lanes) -------------------------------------------------------

bool Peer::next_chunk(PeerLane& lane, ChunkWork* out) {
  std::lock_guard lock(mu);
  if (state_ != State::kUp || run_queue_.empty()) return false;
  if (!shared_.options.adaptive_striping && live_lanes_locked() > 1) {
    // Round robin: wait for this lane's turn; a lane that is gone loses it.
    while (next_round_robin_ >= lanes_.size() || !lanes_[next_round_robin_] ||
           !lanes_[next_round_robin_]->open())
      next_round_robin_ = next_round_robin_ + 1 >= lanes_.size() ? 0 : next_round_robin_ + 1;
    if (next_round_robin_ != lane.index()) {
      lanes_[next_round_robin_]->wake();
      return false;
    }
    next_round_robin_ = (next_round_robin_ + 1) % static_cast<uint32_t>(lanes_.size());
  }
  if (lane.in_flight() > 0 && left_to_idle_lanes_locked(lane)) return false;
  if (!take_turn_locked(lane)) return false;
  std::shared_ptr<TransferState>& transfer = run_queue_[turn_];
  TransferState& t = *transfer;
  if (!t.again.empty()) {
    out->chunk = t.again.back();
    t.again.pop_back();
  } else {
    out->chunk = t.next_chunk++;
  }
  ++t.in_flight;
  if (t.first_out == 0) t.first_out = now_ns();
  if (t.shares.size() <= lane.index()) t.shares.resize(lanes_.size());
  t.shares[lane.index()].bytes += t.plan.chunks[out->chunk].bytes;
  t.shares[lane.index()].chunks += 1;
  out->transfer_id = t.id;
  out->transfer = transfer;
  if (!t.has_work()) {
    t.queued = false;
    std::swap(run_queue_[turn_], run_queue_.back());
    run_queue_.pop_back();
  }
  return true;
}

// Moves turn_ to the next transfer that this lane may carry.
bool Peer::take_turn_locked(const PeerLane& lane) {
  for (size_t tried = 0; tried < run_queue_.size(); ++tried) {
    turn_ = turn_ + 1 < run_queue_.size() ? turn_ + 1 : 0;
    uint32_t home = run_queue_[turn_]->home;
    if (home == kAnyLane || home == lane.index()) return true;
  }
  return false;
}

// The last chunks of what is queued go to lanes that have nothing to do, not behind others on a
// lane that has: a small transfer is as fast as its busiest lane.
bool Peer::left_to_idle_lanes_locked(const PeerLane& asking) {
  if (lanes_.size() < 2 || run_queue_.size() > 1) return false;
  const TransferState& t = *run_queue_[0];
  if (t.home != kAnyLane) return false;
  size_t left = t.again.size() + (t.plan.chunks.size() - t.next_chunk);
  if (left >= lanes_.size()) return false;
  size_t idle = 0;
  for (auto& lane : lanes_) {
    if (!lane || lane.get() == &asking || !lane->open() || lane->in_flight() > 0) continue;
    lane->wake();
    ++idle;
  }
  return left <= idle;
}

void Peer::settle(const ChunkWork& work, uint32_t, tcpx_code code, const char* who) {
  std::lock_guard lock(mu);
  TransferState& t = *work.transfer;
  if (!t.live || t.id != work.transfer_id) return;  // ended and perhaps posted again
  --t.in_flight;
  if (code == TCPX_OK) {
    ++t.settled;
    if (shared_.placer != nullptr && shared_.placer->stages() && t.plan.op == TCPX_READ)
      t.staging_bytes += t.plan.chunks[work.chunk].bytes;
  } else if (!t.ending) {
    const Chunk& chunk = t.plan.chunks[work.chunk];
    const wire::Piece& piece = t.plan.runs[chunk.first_run].remote;
    fail_locked(
        work.transfer,
        transfer_error(code, strf("{} refused chunk {} ({} at region {:#x} offset "
                                  "{}): {}",
                                  who, work.chunk, t.plan.op == TCPX_WRITE ? "write" : "read",
                                  make_region_id(piece.slot, piece.generation),
                                  piece.offset + chunk.offset, code_name(code))));
    return;
  }
  progress_locked(work.transfer);
}

// Ends the transfer if it can end now: everything settled, or failing and nothing in flight.
void Peer::progress_locked(const std::shared_ptr<TransferState>& transfer) {
  TransferState& t = *transfer;
  if (t.ending) {
    t.ended.notify_all();  // a cancel may be waiting for in_flight
    if (t.in_flight == 0 && !t.status.ok()) finish_locked(t, t.status.code());
    return;
  }
  if (t.settled < t.plan.chunks.size()) return;
  t.last_settled = now_ns();
  if (t.notice == nullptr) return finish_locked(t, TCPX_OK);
  t.notice_out = t.last_settled;
  t.notice->transfer = transfer;
  queue_notice_locked(t.notice);
}

void Peer::fail_locked(const std::shared_ptr<TransferState>& transfer, const Status& status) {
  transfer->ending = true;
  transfer->status = status;
  if (transfer->queued) {
    std::erase(run_queue_, transfer);
    transfer->queued = false;
  }
  progress_locked(transfer);
}

void Peer::finish_locked(TransferState& t, tcpx_code code) {
  if (!t.live) return;
  if (t.queued) std::erase_if(run_queue_, [&](auto& entry) { return entry.get() == &t; });
  t.queued = t.live = false;
  std::shared_ptr<TransferState> keep = std::move(live_[t.live_at]);
  if (t.live_at + 1 != live_.size()) {
    live_[t.live_at] = std::move(live_.back());
    live_[t.live_at]->live_at = t.live_at;
  }
  live_.pop_back();
  t.ending = true;
  t.notice.reset();
  t.ended_at = now_ns();
  auto& counter =
      code == TCPX_OK ? shared_.counters.transfers_done : shared_.counters.transfers_failed;
  counter.fetch_add(1, std::memory_order_relaxed);
  t.code.store(code, std::memory_order_release);
  if (t.waiters > 0) t.ended.notify_all();
  if (Loop* loop = t.driving.load()) loop->nudge();
  shared_.log.trace("peer {}: transfer {} ended: {} ({} bytes in {} us)", id_, t.id,
                    code_name(code), t.plan.bytes, (t.ended_at - t.posted_at) / kMicro);
}

// ---- fences --------------------------------------------------------------------------------

// After this no lane touches the transfer's local memory, except placings that cannot be called
// back; those are waited for here. A lane that does not let go in time is closed. False: something
// still touched it at the end.
bool Peer::stop(const std::shared_ptr<TransferState>& transfer, bool forget) {
  LaneList all = lanes();
  Nanos give_up = now_ns() + 10 * kSecond;
  for (;;) {
    size_t moving = 0;
    for (PeerLane* lane : all) {
      auto held = std::make_shared<size_t>(0);
      bool ran = lane->in_loop([lane, held, transfer, forget, keep = shared_from_this()] {
        *held = lane->stop(*transfer, forget);
        if (*held > 0) lane->close_if_stuck();
      });
      if (!ran) return false;
      moving += *held;
    }
    if (moving == 0) return true;
    if (now_ns() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Local fence now, no waiting for the peer.
void Peer::end_now(const std::shared_ptr<TransferState>& transfer, const Status& status) {
  uint64_t id;
  {
    std::lock_guard lock(mu);
    if (!transfer->live) return;
    id = transfer->id;
    transfer->ending = true;
    if (transfer->queued) std::erase(run_queue_, transfer);
    transfer->queued = false;
  }
  bool let_go = stop(transfer, true);
  std::lock_guard lock(mu);
  if (!transfer->live || transfer->id != id) return;
  transfer->held |= !let_go;
  for (auto& [lane, works] : limbo_)
    std::erase_if(works, [&](const ChunkWork& work) { return work.transfer == transfer; });
  if (transfer->status.ok()) transfer->status = status;
  finish_locked(*transfer, transfer->status.code());
}

Status Peer::cancel(const std::shared_ptr<TransferState>& transfer, Nanos deadline) {
  Status cancelled = transfer_error(TCPX_CANCELLED, "cancelled by the caller");
  {
    std::lock_guard lock(mu);
    if (!transfer->live) return let_go_locked(*transfer);
    transfer->ending = true;
    if (transfer->queued) std::erase(run_queue_, transfer);
    transfer->queued = false;
  }
  bool let_go = stop(transfer, false);
  bool confirmed;
  Status peer_end;
  {
    // WRITE: what is out lands or is refused before its answer comes. READ: nothing to wait for.
    std::unique_lock lock(mu);
    transfer->held |= !let_go;
    confirmed = transfer->plan.op == TCPX_READ || transfer->held ||
                wait_until(transfer->ended, lock, deadline, [&] {
                  return !transfer->live || transfer->in_flight == 0 || state_ == State::kEnded;
                });
    if (state_ == State::kEnded && transfer->plan.op == TCPX_WRITE) peer_end = end_status_;
  }
  end_now(transfer, cancelled);
  {
    std::lock_guard lock(mu);
    if (Status status = let_go_locked(*transfer); !status) return status;
  }
  if (!peer_end.ok()) return peer_end;
  if (!confirmed)
    return transfer_error(TCPX_DEADLINE,
                          "local memory is safe, but the peer did not confirm in "
                          "time that nothing more lands in its memory");
  return {};
}

// A fence cannot hold against a thread in somebody else's code.
Status Peer::let_go_locked(const TransferState& transfer) const {
  if (!transfer.held) return {};
  return transfer_error(TCPX_PATH_UNAVAILABLE,
                        "the net plugin hangs in a call and may still use "
                        "the local memory; do not free it");
}

void Peer::release(const std::shared_ptr<TransferState>& transfer) {
  end_now(transfer, transfer_error(TCPX_CANCELLED, "released while in progress"));
}

void Peer::revoke_local(uint64_t region) {
  std::vector<std::shared_ptr<TransferState>> hit;
  {
    std::lock_guard lock(mu);
    for (auto& transfer : live_)
      if (transfer->plan.uses(region)) hit.push_back(transfer);
  }
  for (auto& transfer : hit)
    end_now(transfer, transfer_error(TCPX_REGION_REVOKED,
                                     strf("local region {:#x} was deregistered", region)));
}

bool Peer::revoke_remote(uint64_t region) {
  bool moving = false;
  for (PeerLane* lane : lanes()) moving |= held_by(*lane, region) > 0;
  return moving;
}

// How many frames and chunks of the lane still touch the region; a lane that hangs counts as one.
size_t Peer::held_by(PeerLane& lane, uint64_t region) {
  auto held = std::make_shared<size_t>(0);
  bool ran = lane.in_loop([lane = &lane, held, region, keep = shared_from_this()] {
    *held = lane->revoke(region);
    if (*held > 0) lane->close_if_stuck();
  });
  return ran ? *held : 1;
}

void Peer::forget_memory(const void* base, uint64_t length) {
  for (PeerLane* lane : lanes())
    if (lane->has_own_loop())
      lane->in_loop([lane, base, length, keep = shared_from_this()] {
        lane->lane().forget_memory(base, length);
      });
}

// ---- notifications -------------------------------------------------------------------------

void Peer::queue_notice_locked(const std::shared_ptr<Notice>& notice) {
  notice->id = next_notice_id_++;
  pending_notices_[notice->id] = notice;
  notices_.push_back(notice);
  if (PeerLane* lane = lane_for_small_locked()) lane->wake();
}

Status Peer::notify(std::shared_ptr<Notice> notice, Nanos deadline) {
  PeerLane* lane;
  {
    std::lock_guard lock(mu);
    if (state_ == State::kEnded) return end_status_;
    queue_notice_locked(notice);
    lane = lane_for_small_locked();
  }
  if (lane != nullptr) lane->loop().try_exclusive([&] { lane->lane().flush(kPostBudget); });
  std::unique_lock lock(mu);
  if (wait_until(notice->ended, lock, deadline, [&] { return notice->confirmed; }))
    return notice->status;
  return peer_error(TCPX_DEADLINE,
                    "the peer did not confirm the notification in time; it may or "
                    "may not be delivered");
}

std::shared_ptr<Notice> Peer::next_notice(PeerLane& lane) {
  std::lock_guard lock(mu);
  if (state_ != State::kUp || notices_.empty()) return nullptr;
  std::shared_ptr<Notice> notice = std::move(notices_.front());
  notices_.pop_front();
  notice->lane = lane.index();
  shared_.counters.notifications_out.fetch_add(1, std::memory_order_relaxed);
  return notice;
}

void Peer::notice_confirmed(uint64_t id, tcpx_code code) {
  std::lock_guard lock(mu);
  auto found = pending_notices_.find(id);
  if (found == pending_notices_.end()) return;
  std::shared_ptr<Notice> notice = std::move(found->second);
  pending_notices_.erase(found);
  notice->confirmed = true;
  if (code != TCPX_OK)
    notice->status = transfer_error(code,
                                    "the peer could not take the notification; its "
                                    "application does not read them");
  notice->ended.notify_all();
  std::shared_ptr<TransferState> transfer = std::move(notice->transfer);
  if (transfer == nullptr || !transfer->live || transfer->notice != notice || transfer->ending)
    return;
  transfer->status = notice->status;
  finish_locked(*transfer, notice->status.code());
}

tcpx_code Peer::notice_arrived(uint64_t id, std::vector<uint8_t>&& bytes) {
  std::lock_guard lock(mu);
  if (id < notices_seen_below_ || notices_seen_.count(id) > 0) {
    shared_.counters.notification_repeats.fetch_add(1);
    return TCPX_OK;  // sent again because a lane was lost; it is delivered already
  }
  if (!shared_.inbox->push(id_, std::move(bytes))) return TCPX_LIMIT;
  notices_seen_.insert(id);
  while (!notices_seen_.empty() && *notices_seen_.begin() == notices_seen_below_) {
    notices_seen_.erase(notices_seen_.begin());
    ++notices_seen_below_;
  }
  shared_.counters.notifications_in.fetch_add(1, std::memory_order_relaxed);
  return TCPX_OK;
}

// ---- lost lanes ----------------------------------------------------------------------------

bool Peer::next_control(wire::Header* out) {
  std::lock_guard lock(mu);
  if (control_.empty()) return false;
  *out = control_.front();
  control_.pop_front();
  return true;
}

void Peer::send_again_locked(const std::vector<ChunkWork>& works) {
  for (const ChunkWork& work : works) {
    TransferState& t = *work.transfer;
    if (!t.live || t.id != work.transfer_id) continue;
    --t.in_flight;
    ++t.retries;
    t.again.push_back(work.chunk);
    if (t.ending)
      progress_locked(work.transfer);
    else
      enqueue_locked(work.transfer);
  }
}

void Peer::lane_lost(PeerLane& lane, const Status& status, std::vector<ChunkWork> writes,
                     std::vector<ChunkWork> reads) {
  bool last;
  {
    std::lock_guard lock(mu);
    changed_.notify_all();
    if (state_ == State::kEnded || leaving_) return;  // end() settles everything
    last = live_lanes_locked() == 0;
    bool fatal = status.blast() == TCPX_BLAST_PEER;
    if (!last && !fatal) {
      ++lanes_lost_;
      shared_.counters.lanes_lost.fetch_add(1);
      for (auto& transfer : live_) {
        ++transfer->lanes_lost;
        transfer->home = kAnyLane;
      }
      send_again_locked(reads);
      limbo_[lane.index()] = std::move(writes);
      // The same question again for every lane not yet confirmed: it may have been on this one.
      for (auto& [index, works] : limbo_) {
        wire::Header ask;
        ask.type = wire::FrameType::kLaneDown;
        ask.chunk = index;
        control_.push_back(ask);
      }
      for (auto& [id, notice] : pending_notices_)
        if (notice->lane == lane.index()) {
          notice->lane = UINT32_MAX;
          notices_.push_back(notice);
        }
      for (auto& other : lanes_)
        if (other && other->open()) other->wake();
    }
    last |= fatal;
  }
  if (status.code() == TCPX_PROTOCOL_ERROR) shared_.counters.protocol_errors.fetch_add(1);
  if (last) return ask_end(status);
  shared_.log.warn("peer {} ({}): lane {} via {} lost: {}; going on with {} lanes", id_,
                   escaped(name()), lane.index(), lane.lane().interface(), status.to_string(),
                   live_lanes());
}

// The peer gave this lane up. Our end is closed before we confirm, so nothing more lands through
// it. Closing has to happen in that lane's loop, so the service thread does it.
void Peer::lane_down_asked(uint32_t index) {
  shared_.defer([self = shared_from_this(), index] {
    PeerLane* lane = nullptr;
    {
      std::lock_guard lock(self->mu);
      if (index < self->lanes_.size()) lane = self->lanes_[index].get();
    }
    if (lane != nullptr && lane->open())
      lane->in_loop([lane, self] {
        lane->lane().close(lane_error(TCPX_PEER_DISCONNECTED, "the peer gave this lane up"));
      });
    std::lock_guard lock(self->mu);
    wire::Header confirm;
    confirm.type = wire::FrameType::kLaneDownAck;
    confirm.chunk = index;
    self->control_.push_back(confirm);
    if (PeerLane* carrier = self->lane_for_small_locked()) carrier->wake();
  });
}

void Peer::lane_down_confirmed(uint32_t index) {
  std::lock_guard lock(mu);
  auto found = limbo_.find(index);
  if (found == limbo_.end()) return;
  send_again_locked(found->second);
  limbo_.erase(found);
  for (auto& lane : lanes_)
    if (lane && lane->open()) lane->wake();
}

void Peer::peer_said_bye() {
  {
    std::lock_guard lock(mu);
    leaving_ = true;
  }
  ask_end(peer_error(TCPX_PEER_CLOSED, "the peer said goodbye"));
}

// ---- watching ------------------------------------------------------------------------------

void Peer::tick(Nanos now) {
  if (held_up(now)) return;
  expire_deadlines(now);
  watch_lanes(now);
  report_stalls(now);
}

// A lane whose thread is in a plugin's call may be there for ever. To wait for it here would hold
// up the engine's other peers, so what is to be done comes later, or with the end.
bool Peer::held_up(Nanos now) {
  bool waiting = false;
  for (PeerLane* lane : lanes()) {
    if (!lane->has_own_loop()) continue;
    if (lane->loop().hangs(now)) {
      end(peer_error(TCPX_PATH_UNAVAILABLE,
                     strf("the net plugin hangs in a call on lane {}; its thread and the memory it "
                          "was given are lost",
                          lane->index())));
      return true;
    }
    waiting |= lane->loop().round_time(now) > kServicePatience;
  }
  return waiting;
}

void Peer::expire_deadlines(Nanos now) {
  std::vector<std::shared_ptr<TransferState>> late;
  {
    std::lock_guard lock(mu);
    for (auto& transfer : live_)
      if (transfer->deadline <= now && !transfer->ending) late.push_back(transfer);
  }
  if (!late.empty())
    for (PeerLane* lane : lanes())
      if (lane->has_own_loop() && !lane->in_loop([] {}, kServicePatience)) return;  // a later tick
  for (auto& transfer : late) {
    std::string where;
    {
      std::lock_guard lock(mu);
      where = strf("{} of {} chunks confirmed, {} in flight", transfer->settled,
                   transfer->plan.chunks.size(), transfer->in_flight);
    }
    end_now(transfer, transfer_error(TCPX_DEADLINE, "the transfer's deadline passed: " + where));
  }
}

void Peer::watch_lanes(Nanos now) {
  const EngineOptions& options = shared_.options;
  Nanos latest = 0;
  LaneList open;
  for (PeerLane* lane : lanes()) {
    if (!lane->open()) continue;
    open.add(lane);
    latest = std::max(latest, lane->last_heard());
  }
  if (open.size() == 0) return;
  if (now - latest > options.peer_timeout)
    return end(peer_error(TCPX_PEER_TIMEOUT,
                          strf("nothing heard from the peer for {} ms", (now - latest) / kMilli)));
  for (PeerLane* lane : open) {
    Nanos heard = lane->last_heard();
    if (now - heard > options.keepalive) lane->ask_ping();
    if (open.size() > 1 && latest - heard > options.lane_timeout)
      lane->in_loop(
          [lane, silent = now - heard, keep = shared_from_this()] {
            lane->lane().close(
                lane_error(TCPX_PEER_TIMEOUT,
                           strf("silent for {} ms while other lanes work", silent / kMilli)));
          },
          kServicePatience);
    if (lane->has_own_loop()) watch_carrier(*lane, now);
  }
  last_watch_ = now;
}

// The stream of a lane may be alive while what carries its payload is not. While the stream is
// silent too, or this process was stopped, nothing can be said.
void Peer::watch_carrier(PeerLane& lane, Nanos now) {
  Nanos patience = shared_.options.lane_timeout;
  Nanos silent = (shared_.options.keepalive + patience) / 2;  // longer than a ping takes
  if (now - lane.last_heard() > silent || now - last_watch_ > silent) lane.audible_since = now;
  if (now - lane.audible_since < patience) return;
  lane.in_loop(
      [lane = &lane, now, patience, keep = shared_from_this()] {
        if (!lane->open()) return;
        std::string why = lane->lane().stalled(now, patience);
        if (!why.empty()) lane->lane().close(lane_error(TCPX_PEER_TIMEOUT, why));
      },
      kServicePatience);
}

// Names what hangs, once per keepalive interval and peer.
void Peer::report_stalls(Nanos now) {
  Nanos age = 2 * shared_.options.keepalive;
  if (now - last_stall_report_ < age || !shared_.log.enabled(TCPX_LOG_WARN)) return;
  for (PeerLane* lane : lanes()) {
    if (!lane->open() || lane->in_flight() == 0) continue;
    auto text = std::make_shared<std::string>();
    bool ran =
        lane->in_loop([lane, text, now, age,
                       keep = shared_from_this()] { *text = lane->describe_stall(now, age); },
                      kServicePatience);
    if (!ran || text->empty()) continue;
    last_stall_report_ = now;
    shared_.log.warn("peer {} ({}) stalls: {}", id_, escaped(name()), *text);
  }
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
  LaneList out;
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
  for (PeerLane* lane : lanes()) paths.insert(lane->lane().path());
  return join(paths, "+");
}

std::string Peer::interfaces() {
  std::set<std::string> names;
  for (PeerLane* lane : lanes())
    if (lane->open()) names.insert(lane->lane().interface());
  return join(names, ",");
}

}  // namespace tcpx
