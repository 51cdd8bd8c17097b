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

namespace tcpx {

// What all movers of an engine share, for the test.
struct SlowMoves {
  SlowMoves(size_t slots_of_each, Nanos each_takes) : slots(slots_of_each), delay(each_takes) {}

  const size_t slots;  // per loop and use
  const Nanos delay;
  std::atomic<bool> held{false};  // none comes to its end
  std::atomic<int> fail_next{0};  // so many fail
  std::atomic<uint64_t> begun{0}, done{0}, starved{0}, looks{0};
  // Orders what the test did before against later moves, and earlier moves against what it does
  // next. The engines order them through a socket, which ThreadSanitizer does not see.
  std::mutex mu;
};

class SlowMover final : public Mover {
 public:
  static constexpr size_t kSlotBytes = 1 << 20;

  explicit SlowMover(SlowMoves& moves) : moves_(moves) {
    for (auto& free : free_)
      for (size_t i = 0; i < moves.slots; ++i)
        free.push_back(storage_.emplace_back(new uint8_t[kSlotBytes]).get());
    for (auto& slot : storage_) memset(slot.get(), 0xEE, kSlotBytes);
  }
  bool stages(const Place&) const override { return true; }
  size_t free_slots(SlotUse use) const override {
    if (free_[index(use)].empty()) ++moves_.starved;
    return free_[index(use)].size();
  }
  uint8_t* take_slot(SlotUse use, uint64_t bytes) override {
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
  uint64_t begin_out(std::span<const iovec> memory, const Place&, uint8_t* slot) override {
    return begin({slot, memory, true, now_ns() + moves_.delay});
  }
  uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory, const Place&) override {
    return begin({const_cast<uint8_t*>(slot), memory, false, now_ns() + moves_.delay});
  }
  MoveState look(uint64_t ticket, std::string* why) override {
    ++moves_.looks;
    auto found = jobs_.find(ticket);
    if (found == jobs_.end()) {
      ADD_FAILURE() << "a move that is over, or never was";
      return MoveState::kDone;
    }
    if (moves_.held || now_ns() < found->second.ready) return MoveState::kRunning;
    Job job = found->second;
    jobs_.erase(found);
    if (moves_.fail_next > 0) {
      --moves_.fail_next;
      *why = "the test said so";
      return MoveState::kFailed;
    }
    std::lock_guard lock(moves_.mu);
    uint8_t* slot = job.slot;
    for (const iovec& part : job.memory) {
      job.out ? memcpy(slot, part.iov_base, part.iov_len)
              : memcpy(part.iov_base, slot, part.iov_len);
      slot += part.iov_len;
    }
    ++moves_.done;
    return MoveState::kDone;
  }

 private:
  struct Job {
    uint8_t* slot;
    std::span<const iovec> memory;
    bool out;
    Nanos ready;
  };
  static size_t index(SlotUse use) { return use == SlotUse::kSend ? 0 : 1; }
  uint64_t begin(const Job& job) {
    jobs_[++last_] = job;
    ++moves_.begun;
    return last_;
  }

  SlowMoves& moves_;
  std::vector<std::unique_ptr<uint8_t[]>> storage_;
  std::vector<uint8_t*> free_[2];
  std::map<uint64_t, Job> jobs_;
  uint64_t last_ = 0;
};

class SlowMovers final : public Movers {
 public:
  SlowMovers(size_t slots, Nanos delay) : moves(slots, delay) {}
  bool serves(const Place&) const override { return true; }
  std::unique_ptr<Mover> make() override { return std::make_unique<SlowMover>(moves); }

  SlowMoves moves;
};

}  // namespace tcpx
