#include "engine/scheduler.h"

#include <algorithm>

namespace tcpx {

namespace {

// Chunks a lane may hold however little is left: one on its way, one behind it. An end that is a
// GPU's has one more that is being copied, and one behind that. Eight lanes, 64 MiB from GPU to
// GPU: 11.5 GB/s with two, 14 with these six. Not more than come to each lane.
constexpr size_t kLeastHeld = 2, kMoreForGpu = 2;

size_t least_held(const Plan& plan, size_t lanes) {
  size_t least = kLeastHeld;
  for (PlaceMask places : {plan.local_places, plan.remote_places})
    if ((places & kGpuBits) != 0) least += kMoreForGpu;
  return std::min(least, std::max(kLeastHeld, plan.chunks.size() / lanes));
}

}  // namespace

// ---- lanes ---------------------------------------------------------------------------------

void Scheduler::add_lane(uint32_t index, const LaneLoad& load) {
  lanes_[index] = &load;
  lane_count_ = std::max(lane_count_, index + 1);
}

void Scheduler::forget_lanes() {
  lanes_ = {};
  lane_count_ = turn_lane_ = 0;
}

LaneBits Scheduler::open_lanes() const {
  LaneBits open;
  for (uint32_t i = 0; i < lane_count_; ++i)
    if (is_open(i)) open.add(i);
  return open;
}

uint32_t Scheduler::lightest() const {
  if (striping_ == Striping::kRoundRobin && turn_lane_ < lane_count_ && is_open(turn_lane_))
    return turn_lane_;
  uint32_t best = kNoLane;
  for (uint32_t i = 0; i < lane_count_; ++i)
    if (is_open(i) && (best == kNoLane || lanes_[i]->held() < lanes_[best]->held())) best = i;
  return best;
}

// ---- transfers -----------------------------------------------------------------------------

void Scheduler::make_room() {
  if (queue_.size() == queue_.capacity()) queue_.reserve(2 * queue_.size());
}

void Scheduler::add(const std::shared_ptr<TransferState>& transfer) {
  has_news();  // also of one that is there: another chunk of it may come first
  if (transfer->queued || !transfer->has_work()) return;
  queue_.push_back(transfer);
  transfer->queued = true;
  if (transfer->plan.touches_gpus()) of_gpus_.fetch_add(1, std::memory_order_relaxed);
  waiting_.store(true, std::memory_order_release);
}

void Scheduler::leave_queue(size_t at) {
  queue_[at]->queued = false;
  if (queue_[at]->plan.touches_gpus()) of_gpus_.fetch_sub(1, std::memory_order_relaxed);
  if (SlotWait& slots = queue_[at]->staging.slots; slots.wanted()) slots.not_wanted(now_ns());
  if (at + 1 != queue_.size()) std::swap(queue_[at], queue_.back());
  queue_.pop_back();
  if (queue_.empty()) waiting_.store(false, std::memory_order_relaxed);
}

void Scheduler::remove(TransferState& transfer) {
  if (!transfer.queued) return;
  for (size_t i = 0; i < queue_.size(); ++i)
    if (queue_[i].get() == &transfer) return leave_queue(i);
}

void Scheduler::remove_all() {
  while (!queue_.empty()) leave_queue(queue_.size() - 1);
}

// ---- chunks --------------------------------------------------------------------------------

bool Scheduler::next(uint32_t lane, const NoMoreOf& no_more, ChunkWork* out, LaneBits* wake) {
  // First of all: who gets nothing anyway must not wake others for it.
  why_none_ = WhyNone::kOther;
  if (!no_more.none() && !queue_.empty() && passes_over_all(lane, no_more)) {
    why_none_ = WhyNone::kPassedOver;
    return false;
  }
  if (queue_.empty()) waiting_.store(false, std::memory_order_relaxed);
  if (queue_.empty()) return false;
  const bool in_turn = striping_ == Striping::kRoundRobin && open_lanes().count() > 1;
  if (in_turn && !has_turn(lane, wake)) return false;
  if (!in_turn && lanes_[lane]->held() > 0 && left_to_others(lane, wake)) {
    why_none_ = WhyNone::kKeptBack;
    return false;
  }
  if (!find_transfer(lane, no_more)) return false;
  if (in_turn) pass_turn();
  *out = hand_out(queue_[turn_], lane);
  if (!out->transfer->has_work()) leave_queue(turn_);
  has_news();
  return true;
}

// Round robin: whether the next chunk is this lane's. A lane that is gone loses its turn; one that
// has it is told.
bool Scheduler::has_turn(uint32_t lane, LaneBits* wake) {
  while (!is_open(turn_lane_)) pass_turn();
  if (turn_lane_ == lane) return true;
  wake->add(turn_lane_);
  return false;
}

bool Scheduler::may_carry(uint32_t lane, const NoMoreOf& no_more, const TransferState& t) {
  return t.lanes.has(lane) && (no_more.none() || !t.plan.is_of(t.first_left(), no_more));
}

// For its receipt: whether the lane leaves it for want of a slot.
void Scheduler::leave(uint32_t lane, const NoMoreOf& no_more, TransferState& t) {
  SlotWait& slots = t.staging.slots;
  if (!t.lanes.has(lane) || slots.is_wanted_by(lane)) return;
  if (t.plan.lacks_slot(t.first_left(), no_more.slots)) slots.wanted_by(lane, now_ns());
}

// Whether there is something for this lane, and nothing that it takes.
bool Scheduler::passes_over_all(uint32_t lane, const NoMoreOf& no_more) const {
  bool any = false;
  for (auto& transfer : queue_) {
    if (may_carry(lane, no_more, *transfer)) return false;
    leave(lane, no_more, *transfer);
    any |= transfer->lanes.has(lane);
  }
  return any;
}

void Scheduler::slots_not_wanted(uint32_t lane) {
  const Nanos now = now_ns();
  for (auto& transfer : queue_) transfer->staging.slots.not_wanted_by(lane, now);
}

// Moves turn_ to the next transfer that this lane may carry.
bool Scheduler::find_transfer(uint32_t lane, const NoMoreOf& no_more) {
  for (size_t tried = 0; tried < queue_.size(); ++tried) {
    turn_ = turn_ + 1 < queue_.size() ? turn_ + 1 : 0;
    if (may_carry(lane, no_more, *queue_[turn_])) return true;
    leave(lane, no_more, *queue_[turn_]);
  }
  return false;
}

// A transfer is as fast as the lane that ends last. So a lane holds no more than half its share of
// what is left, and the very last chunks go to lanes that have nothing to do. Matters most for
// READ, where a lane could ask for its whole window at once: 4 MiB went over one of two lanes, 16
// MiB over two of four.
bool Scheduler::left_to_others(uint32_t lane, LaneBits* wake) const {
  if (lane_count_ < 2 || queue_.size() > 1) return false;
  const TransferState& t = *queue_[0];
  const size_t left = t.chunks_left();
  size_t open = 0, idle = 0;
  LaneBits others;
  for (uint32_t i = 0; i < lane_count_; ++i) {
    if (!is_open(i) || !t.lanes.has(i)) continue;
    ++open;
    if (i == lane || !lanes_[i]->idle()) continue;
    ++idle;
    others.add(i);
  }
  if (open < 2) return false;
  // What it holds may be another transfer's, which a GPU keeps: then it is not this one's share.
  const size_t holds = std::min(lanes_[lane]->held(), t.in_flight);
  const bool has_its_share =
      t.plan.chunks.size() > 1 && holds >= std::max(least_held(t.plan, open), left / open / 2);
  if (!has_its_share && (left >= open || left > idle)) return false;
  *wake = others;
  return true;
}

uint32_t Scheduler::next_to_deal(const TransferState& transfer, uint32_t lane) const {
  if (striping_ != Striping::kAdaptive || !queue_.empty() || !transfer.has_work()) return kNoLane;
  for (; lane < lane_count_; ++lane)
    if (is_open(lane) && transfer.lanes.has(lane) && !lanes_[lane]->may_hang &&
        lanes_[lane]->idle())
      return lane;
  return kNoLane;
}

ChunkWork Scheduler::hand_out(const std::shared_ptr<TransferState>& transfer, uint32_t lane) const {
  TransferState& t = *transfer;
  uint32_t chunk;
  if (!t.again.empty()) {
    chunk = t.again.back();
    t.again.pop_back();
  } else {
    chunk = t.next_chunk++;
  }
  ++t.in_flight;
  if (t.first_out == 0) t.first_out = now_ns();
  if (t.shares.size() <= lane) t.shares.resize(lane_count_);
  t.shares[lane].bytes += t.plan.chunks[chunk].bytes;
  t.shares[lane].chunks += 1;
  const bool shared = lane_count_ > 1 && t.lanes != LaneBits::only(lane);
  return {transfer, t.id, chunk, t.epoch, shared};
}

void Scheduler::take_back(const ChunkWork& work, uint32_t lane) {
  TransferState& t = *work.transfer;
  --t.in_flight;
  t.again.push_back(work.chunk);
  t.shares[lane].bytes -= t.plan.chunks[work.chunk].bytes;
  t.shares[lane].chunks -= 1;
  add(work.transfer);
}

void Scheduler::send_again(const ChunkWork& work) {
  TransferState& t = *work.transfer;
  --t.in_flight;
  ++t.retries;
  t.again.push_back(work.chunk);
  add(work.transfer);
}

}  // namespace tcpx
