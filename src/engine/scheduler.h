// Which chunk goes next, and by which lane.
//
// Lanes ask; transfers that have chunks left are served in turn. A lane gets less the slower it is,
// because it asks less often (adaptive), or exactly every n-th chunk (round robin). Nothing is sent
// or woken here: who is to be woken is told, and lanes are what they tell of themselves (LaneLoad),
// so that all of it is tested without a socket. Guarded by the peer's mutex, but for may_have_work.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "engine/lane_load.h"
#include "engine/transfer.h"

namespace tcpx {

class Scheduler {
 public:
  enum class Striping { kAdaptive, kRoundRobin };
  explicit Scheduler(Striping striping) : striping_(striping) { queue_.reserve(64); }

  // ---- lanes ----
  // `load` is there until the lanes are forgotten.
  void add_lane(uint32_t index, const LaneLoad& load);
  void forget_lanes();
  LaneBits open_lanes() const;
  // The lane for something short: round robin's next one, or who holds the fewest chunks; kNoLane.
  uint32_t lightest() const;

  // ---- transfers ----
  // Room for one more, so that adding it cannot fail.
  void make_room();
  // Has chunks to hand out, from now on.
  void add(const std::shared_ptr<TransferState>& transfer);
  void remove(TransferState& transfer);
  void remove_all();
  bool empty() const { return queue_.empty(); }
  // Whether asking is worth the lock. Any thread; set before a lane is woken, taken back by who
  // finds nothing.
  bool may_have_work() const { return waiting_.load(std::memory_order_acquire); }
  // Whether a transfer waits that touches memory of GPUs. Any thread.
  bool may_have_gpu_work() const { return of_gpus_.load(std::memory_order_relaxed) > 0; }
  // Another number whenever there may be another chunk to get. Any thread.
  uint32_t news() const { return news_.load(std::memory_order_acquire); }
  void has_news() { news_.store(news() + 1, std::memory_order_release); }

  // ---- chunks ----
  // The next one for this lane, and who else should ask; none of which the lane takes no more now.
  // False: none now.
  bool next(uint32_t lane, const NoMoreOf& no_more, ChunkWork* out, LaneBits* wake);
  // Why the last `next` found none.
  enum class WhyNone : uint8_t {
    kOther,
    kPassedOver,  // it would have found one, had the lane taken any
    kKeptBack  // what is left is for others, until one of them takes of it or this one holds less
  };
  WhyNone why_none() const { return why_none_; }
  // What waits for a slot, for its receipt, waits for none of this lane any more.
  void slots_not_wanted(uint32_t lane);
  // Of a transfer that begins and has no other before it: an idle lane, from `lane` on, that is
  // given a chunk for which it need not come; kNoLane: none.
  uint32_t next_to_deal(const TransferState& transfer, uint32_t lane) const;
  ChunkWork hand_out(const std::shared_ptr<TransferState>& transfer, uint32_t lane) const;
  // Has never left the lane, so that nothing has to be known about it; or was lost with it, and may
  // go again. Of a live post.
  void take_back(const ChunkWork& work, uint32_t lane);
  void send_again(const ChunkWork& work);

 private:
  bool is_open(uint32_t lane) const { return lanes_[lane] != nullptr && lanes_[lane]->is_open(); }
  bool has_turn(uint32_t lane, LaneBits* wake);
  void pass_turn() { turn_lane_ = turn_lane_ + 1 < lane_count_ ? turn_lane_ + 1 : 0; }
  bool left_to_others(uint32_t lane, LaneBits* wake) const;
  static bool may_carry(uint32_t lane, const NoMoreOf& no_more, const TransferState& transfer);
  static void leave(uint32_t lane, const NoMoreOf& no_more, TransferState& transfer);
  bool passes_over_all(uint32_t lane, const NoMoreOf& no_more) const;
  bool find_transfer(uint32_t lane, const NoMoreOf& no_more);
  void leave_queue(size_t at);

  const Striping striping_;
  std::array<const LaneLoad*, wire::kMaxLanes> lanes_{};
  uint32_t lane_count_ = 0;                            // beyond the last one
  uint32_t turn_lane_ = 0;                             // round robin: whose chunk is next
  std::vector<std::shared_ptr<TransferState>> queue_;  // served in turn, not in order
  size_t turn_ = 0;
  WhyNone why_none_ = WhyNone::kOther;

  std::atomic<bool> waiting_{false};
  std::atomic<uint32_t> of_gpus_{0};  // in the queue
  std::atomic<uint32_t> news_{0};
};

}  // namespace tcpx
