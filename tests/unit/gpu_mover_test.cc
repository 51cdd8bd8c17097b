// What a loop's mover of GPU memory tells and does not, on a driver without a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "../support/fake_cuda.h"
#include "../support/pattern.h"
#include "gpu/gpu_movers.h"

namespace tcpx {
namespace {

using namespace std::chrono_literals;

// A loop that has gone to sleep.
struct Sleeper final : MoveWatcher {
  bool looks() const noexcept override { return false; }
  void look_now() noexcept override { ++told; }
  std::atomic<int> told{0};
};

struct GpuMoverOfALoop : testing::Test {
  static constexpr Place kGpu{Place::Kind::kCuda, 0};
  static constexpr uint64_t kChunk = 64 << 10;

  // Three chunks each way.
  static gpu::GpuMovers::Settings settings(uint64_t slot) {
    gpu::GpuMovers::Settings out;
    out.gpu.staging = 6 * kChunk;
    out.gpu.chunk = kChunk;
    out.gpu.slot = slot;
    return out;
  }
  explicit GpuMoverOfALoop(uint64_t slot = 0) : movers(settings(slot), Log()) {}
  void SetUp() override {
    if (test::fake_cuda() == nullptr) GTEST_SKIP() << "needs the tests' driver";
    ASSERT_TRUE(movers.admit(memory.address(), kChunk, kGpu).ok());
  }
  void TearDown() override {
    if (test::fake_cuda() == nullptr) return;
    test::fake_cuda()->clear_plan();
    test::fake_cuda()->release();
    mover->tell_nobody();
  }

  MoveState ends(uint64_t ticket) {
    MoveEnd end;
    MoveState state = MoveState::kRunning;
    for (int i = 0; i < 5000 && state == MoveState::kRunning; ++i) {
      state = mover->look(ticket, &end);
      std::this_thread::sleep_for(1ms);
    }
    return state;
  }
  bool moved_out_of_spare() {
    uint8_t* spare = mover->take_spare(kChunk, kGpu);
    const iovec all{memory.address(), kChunk};
    const bool done =
        spare != nullptr && ends(mover->begin_in(spare, {&all, 1}, kGpu)) == MoveState::kDone;
    if (spare != nullptr) mover->give_spare(spare, kGpu);
    return done;
  }

  Sleeper loop;
  test::DeviceMemory memory{kChunk};
  gpu::GpuMovers movers;
  std::unique_ptr<Mover> mover = movers.make(MoverFor::kStreams, loop);
};

TEST_F(GpuMoverOfALoop, WhoSleepsIsToldOfTheEndOfAMove) {
  uint8_t* slot = mover->take_slot(SlotUse::kSend, kChunk, kGpu);
  ASSERT_NE(slot, nullptr);
  ASSERT_TRUE(test::fake_cuda()->plan("hang:1"));
  const iovec all{memory.address(), kChunk};
  const uint64_t ticket = mover->begin_out({&all, 1}, kGpu, slot);
  EXPECT_TRUE(mover->tells());
  test::fake_cuda()->clear_plan();
  test::fake_cuda()->release();
  MoveEnd end;
  for (int i = 0; i < 5000 && mover->look(ticket, &end) == MoveState::kRunning; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_FALSE(end.failed()) << end.why;
  for (int i = 0; i < 5000 && loop.told == 0; ++i) std::this_thread::sleep_for(1ms);  // after it
  EXPECT_GT(loop.told, 0);
}

// A lane that waits for a slot while nothing is being copied: the GPU's thread has nothing to tell,
// not even once in a while, so the loop has to look by itself, or its lane waits for the next
// event.
TEST_F(GpuMoverOfALoop, WhoWaitsForASlotAloneLooksByItself) {
  while (mover->take_slot(SlotUse::kReceive, kChunk, kGpu) != nullptr) {
  }
  EXPECT_FALSE(mover->tells());
}

// Peers take as long as they like to send what they have announced.
TEST_F(GpuMoverOfALoop, HeadsLeaveASlotForWhatHasArrived) {
  const auto head = [&] { return mover->take_slot(SlotUse::kReceive, kChunk, kGpu); };
  uint8_t *first = head(), *second = head();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  EXPECT_EQ(head(), nullptr);
  EXPECT_EQ(mover->free_slots(SlotUse::kReceive, kGpu), 0u);
  for (int round = 0; round < 3; ++round) EXPECT_TRUE(moved_out_of_spare());
  // What has arrived leaves in the GPU's time, and another may come.
  const iovec all{memory.address(), kChunk};
  const uint64_t ticket = mover->begin_in(first, {&all, 1}, kGpu);
  uint8_t* third = head();
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(ends(ticket), MoveState::kDone);
  for (uint8_t* slot : {first, second, third}) mover->give_slot(SlotUse::kReceive, slot);
  EXPECT_EQ(mover->free_slots(SlotUse::kReceive, kGpu), 2u);
}

TEST_F(GpuMoverOfALoop, WhatWaitsForASlotInSpareMemoryIsTakenBack) {
  for (int i = 0; i < 2; ++i) mover->take_slot(SlotUse::kReceive, kChunk, kGpu);
  ASSERT_TRUE(test::fake_cuda()->plan("hang:1"));
  const iovec all{memory.address(), kChunk};
  uint8_t *begun = mover->take_spare(kChunk, kGpu), *waiting = mover->take_spare(kChunk, kGpu);
  const uint64_t one = mover->begin_in(begun, {&all, 1}, kGpu);
  const uint64_t other = mover->begin_in(waiting, {&all, 1}, kGpu);
  MoveEnd end;
  EXPECT_EQ(mover->look(one, &end), MoveState::kRunning);
  EXPECT_EQ(mover->look(other, &end), MoveState::kRunning);
  EXPECT_FALSE(mover->take_back(one)) << "it has a slot, and may be in the memory";
  EXPECT_TRUE(mover->take_back(other));
  mover->give_spare(waiting, kGpu);
  EXPECT_TRUE(mover->tells()) << "nothing waits for a slot any more";
  test::fake_cuda()->clear_plan();
  test::fake_cuda()->release();
  EXPECT_EQ(ends(one), MoveState::kDone);
  EXPECT_FALSE(mover->take_back(one));
  mover->give_spare(begun, kGpu);
}

struct GpuMoverOfSmallSlots : GpuMoverOfALoop {
  static constexpr uint64_t kSlot = kChunk / 4;
  GpuMoverOfSmallSlots() : GpuMoverOfALoop(kSlot) {}
};

// Peers choose how long their chunks are, when they come and which of them never ends.
TEST_F(GpuMoverOfSmallSlots, HeadsOfAnyLengthLeaveRoomForAWholeChunk) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    test::Rng rng(seed);
    std::vector<uint8_t*> heads;
    for (int step = 0; step < 60; ++step) {
      uint8_t* head =
          mover->take_slot(SlotUse::kReceive, (1 + rng.below(4)) * kSlot - rng.below(9), kGpu);
      if (head != nullptr) heads.push_back(head);
      if (heads.empty() || (head != nullptr && rng.below(3) != 0)) continue;
      std::swap(heads[rng.below(heads.size())], heads.back());
      mover->give_slot(SlotUse::kReceive, heads.back());
      heads.pop_back();
    }
    ASSERT_TRUE(moved_out_of_spare()) << "seed " << seed;
    for (uint8_t* head : heads) mover->give_slot(SlotUse::kReceive, head);
    ASSERT_EQ(mover->free_slots(SlotUse::kReceive, kGpu), 2u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tcpx
