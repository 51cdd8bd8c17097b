// A mover of host memory that is slow, has few slots, and fails when told to. A GPU's event will
// stand where this one compares the time.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "memory/mover.h"
#include "memory/pages.h"
#include "memory/scatter_list.h"

namespace tcpx {

// What all movers of an engine share, for the test.
struct SlowMoves {
  SlowMoves(size_t slots_of_each, Nanos each_takes) : slots(slots_of_each), delay(each_takes) {}

  const size_t slots;  // per loop and use
  const Nanos delay;
  std::atomic<bool> stages{true};  // all memory; else only what lanes cannot reach
  // None that touches user memory comes to its end: where all is staged, what unpacks does not.
  std::atomic<bool> held{false};
  std::atomic<int> fail_next{0};   // so many fail
  std::atomic<uint64_t> begun{0};  // that touch user memory
  std::atomic<uint64_t> done{0}, starved{0}, looks{0};
  // Orders what the test did before against later moves, and earlier moves against what it does
  // next. The engines order them through a socket, which ThreadSanitizer does not see.
  std::mutex mu;
};

class SlowMover final : public Mover {
 public:
  static constexpr size_t kSlotBytes = 1 << 20;

  // Beside a stream one more is what receives are posted on, and one is for a proof at the
  // beginning.
  explicit SlowMover(SlowMoves& moves, MoverFor use = MoverFor::kStreams) : moves_(moves) {
    size_t all = 2 * moves.slots + (use == MoverFor::kBeside ? 2 : 0);
    EXPECT_TRUE(storage_.allocate(all * kSlotBytes));
    memset(storage_.data(), 0xEE, storage_.size());
    for (size_t i = 0; i < all; ++i)
      free_[index(i < moves.slots ? SlotUse::kSend : SlotUse::kReceive)].push_back(storage_.data() +
                                                                                   i * kSlotBytes);
  }
  PlaceMask staged() const override { return moves_.stages ? kHostBit : PlaceMask{0}; }
  size_t free_slots(SlotUse use, const Place&) override {
    if (free_[index(use)].empty()) ++moves_.starved;
    return free_[index(use)].size();
  }
  uint8_t* take_slot(SlotUse use, uint64_t bytes, const Place&) override {
    EXPECT_LE(bytes, kSlotBytes);
    auto& free = free_[index(use)];
    if (free.empty()) {
      ++moves_.starved;
      return nullptr;
    }
    uint8_t* slot = free.back();
    free.pop_back();
    return slot;
  }
  void give_slot(SlotUse use, uint8_t* slot) override {
    for (auto& [ticket, job] : jobs_) EXPECT_NE(job.slot, slot) << "it is in use";
    memset(slot, 0xEE, kSlotBytes);  // whoever still sends it sends this
    free_[index(use)].push_back(slot);
  }
  // All of them together.
  RegionExtent slot_extent(const uint8_t*) const override {
    return {1, storage_.data(), storage_.size()};
  }
  uint64_t begin_out(std::span<const iovec> memory, const Place&, uint8_t* slot) override {
    return begin({Job::kOut, slot, {{}, nullptr, memory, 0, {}}, now_ns() + moves_.delay});
  }
  uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory, const Place&) override {
    return begin({Job::kIn,
                  const_cast<uint8_t*>(slot),
                  {{}, nullptr, memory, 0, {}},
                  now_ns() + moves_.delay});
  }
  uint64_t begin_unpack(const Unpacking& what) override {
    return begin({Job::kUnpack, nullptr, what, now_ns() + moves_.delay});
  }
  MoveState look(uint64_t ticket, MoveEnd* end) override {
    ++moves_.looks;
    auto found = jobs_.find(ticket);
    if (found == jobs_.end()) {
      ADD_FAILURE() << "a move that is over, or never was";
      return MoveState::kDone;
    }
    if ((moves_.held && touches_user_memory(found->second)) || now_ns() < found->second.ready)
      return MoveState::kRunning;
    Job job = found->second;
    jobs_.erase(found);
    end->begun = end->submitted = job.ready - moves_.delay;
    end->over = now_ns();
    if (moves_.fail_next > 0) {
      --moves_.fail_next;
      end->why = "the test said so";
      return MoveState::kFailed;
    }
    std::lock_guard lock(moves_.mu);
    carry_out(job);
    ++moves_.done;
    return MoveState::kDone;
  }

 private:
  struct Job {
    enum { kOut, kIn, kUnpack } kind;
    uint8_t* slot;
    Unpacking what;
    Nanos ready;
  };
  bool touches_user_memory(const Job& job) const {
    return job.kind != Job::kUnpack || !moves_.stages;
  }
  static void carry_out(const Job& job) {
    ScatterList memory(job.what.memory);
    uint64_t bytes = 0;
    for (const iovec& part : job.what.memory) bytes += part.iov_len;
    if (job.kind == Job::kOut) memory.get(0, job.slot, bytes);
    if (job.kind == Job::kIn) memory.put(0, job.slot, bytes);
    for (const Fragment& fragment : job.what.fragments)
      memory.put(job.what.offset + fragment.destination, job.what.pool + fragment.source,
                 fragment.length);
  }
  static size_t index(SlotUse use) { return use == SlotUse::kSend ? 0 : 1; }
  uint64_t begin(const Job& job) {
    jobs_[++last_] = job;
    moves_.begun += touches_user_memory(job);
    return last_;
  }

  SlowMoves& moves_;
  Pages storage_;
  std::vector<uint8_t*> free_[2];
  std::map<uint64_t, Job> jobs_;
  uint64_t last_ = 0;
};

class SlowMovers final : public Movers {
 public:
  SlowMovers(size_t slots, Nanos delay) : moves(slots, delay) {}
  Status admit(const void*, uint64_t, const Place&) override { return {}; }
  std::unique_ptr<Mover> make(MoverFor use, MoveWatcher&) override {
    return std::make_unique<SlowMover>(moves, use);
  }

  SlowMoves moves;
};

}  // namespace tcpx
