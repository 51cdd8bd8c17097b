// What a loop's mover of GPU memory tells and does not, on a driver without a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "../support/fake_cuda.h"
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

  // Two slots each way.
  static gpu::GpuMovers::Settings settings() {
    gpu::GpuMovers::Settings out;
    out.gpu.staging = 4 * kChunk;
    out.gpu.chunk = kChunk;
    return out;
  }
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

  Sleeper loop;
  test::DeviceMemory memory{kChunk};
  gpu::GpuMovers movers{settings(), Log()};
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

}  // namespace
}  // namespace tcpx
