// What can go wrong with a GPU costs the transfers of its memory, and no others.
#include <sys/wait.h>

#include <atomic>

#include "../support/proc.h"
#include "gpu/kernels/image.h"
#include "gpu_fixture.h"

namespace tcpx::test {
namespace {

constexpr int kIllegalAddress = 700, kLaunchFailed = 719, kInvalidValue = 1, kOutOfMemory = 2;

class GpuFaultAt : public GpuFault, public ::testing::WithParamInterface<GpuCase> {
 protected:
  void start_here(const Options& more = {}) {
    start(GetParam().kind_a(), GetParam().kind_b(), more);
  }
  std::string text_here(const std::string& text) const {
    return GetParam().at_initiator ? text : "";  // the owner's log has it
  }
};
INSTANTIATE_TEST_SUITE_P(All, GpuFaultAt, ::testing::ValuesIn(gpu_cases(true)),
                         ::testing::PrintToStringParamName());

TEST_P(GpuFaultAt, ACopyThatFailsCostsItsTransferOnly) {
  start_here();
  if (HasFailure()) return;
  for (int n : {1, 3}) {
    SCOPED_TRACE(n);
    Transfer transfer = prepare(GetParam().op, GetParam().scattered);
    plan(strf("fail:{}@{}={}", GetParam().call(), n, kInvalidValue));
    // A kernel that was late has copies in its place.
    if (GetParam().scattered) plan(strf("fail:{}@1+={}", GetParam().copy(), kInvalidValue));
    ASSERT_TRUE(succeeded(transfer.post()));
    expect_copy_failed(transfer, text_here("CUDA error 1: "));
    all_well();
    expect_works("afterwards");
    if (HasFailure()) return;
  }
  expect_all_lanes();
}

// Nothing in memory tells any more when a copy has ended: what is under way is waited for all the
// same, and the GPU is given up.
TEST_P(GpuFaultAt, AValueThatCannotBeWrittenEndsTheGpuAndNothingLandsLate) {
  start_here();
  if (HasFailure()) return;
  Transfer transfer = prepare(GetParam().op, GetParam().scattered);
  plan(strf("copy_us:{};kernel_us:20000;fail:cuStreamWriteValue32_v2@3={}",
            GetParam().scattered ? 1'000 : 20'000, kInvalidValue));
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_EQ(transfer.wait(kLong).code(), TCPX_COPY_FAILED) << transfer.error();
  ASSERT_TRUE(succeeded(transfer.cancel(kLong)));  // what is out
  fill(*source(GetParam().op).memory, 0, kBytes, Pattern(70, kAfter), 0);
  expect_no_trace(*target(GetParam().op).memory, 70);
  expect_ours(*target(GetParam().op).memory, 71, Ms{200});
  all_well();
  expect_host_works();
  Transfer next = prepare(GetParam().op, GetParam().scattered);
  ASSERT_TRUE(succeeded(next.post()));
  expect_copy_failed(next, text_here("cuda:0 is lost to this process: CUDA error 1: "));
  expect_all_lanes();
}

TEST_P(GpuFaultAt, ALostContextEndsItsTransfersOnly) {
  start_here();
  if (HasFailure()) return;
  for (Engine* engine : {&pair->a, &pair->b}) (void)make_local(*engine, kPiece, 0, 8, "cuda:1");
  Transfer transfer = prepare(GetParam().op, GetParam().scattered);
  plan("copy_us:5000;kernel_us:5000");
  ASSERT_TRUE(succeeded(transfer.post()));
  std::this_thread::sleep_for(Ms{8});
  const bool under_way = transfer.poll().in_progress();
  lose(0, kIllegalAddress);
  if (under_way) expect_copy_failed(transfer, text_here("CUDA error 700: "));
  all_well();
  expect_host_works();
  // One that is posted now, too.
  Transfer next = prepare(GetParam().op, GetParam().scattered);
  ASSERT_TRUE(succeeded(next.post()));
  expect_copy_failed(next, text_here("cuda:0 is lost to this process: CUDA error 700: "));
  // The other GPU does not notice.
  Engine& engine = GetParam().at_initiator ? pair->a : pair->b;
  Local& here = GetParam().at_initiator ? pair->memory_a : pair->memory_b;
  ASSERT_TRUE(succeeded(engine.deregister(here.region)));
  EXPECT_EQ(engine.register_memory(here.memory->address(), kBytes, 0, &here.region).code(),
            TCPX_UNSUPPORTED);
  here = make_local(engine, kBytes, kReadWrite, 9, "cuda:1");
  if (!GetParam().at_initiator) pair->remote_b = describe(engine, here.region);
  expect_works("on the other GPU");
  expect_all_lanes();
}

// It is told in time by whoever has nobody in a wait, too.
TEST_F(GpuFault, ALossIsToldToSleepingLoops) {
  start("host", "cuda", {{"deadline", time_option(8'000)}});
  lose(0, kLaunchFailed);
  for (int round = 0; round < 20; ++round) {
    Transfer transfer = prepare(TCPX_WRITE);
    ASSERT_TRUE(succeeded(transfer.post()));
    Stopwatch watch;
    ASSERT_EQ(transfer.wait(kLong).code(), TCPX_COPY_FAILED);
    EXPECT_LT(watch.elapsed(), patience(150)) << "round " << round;
    std::this_thread::sleep_for(Ms{3});
  }
}

// ---- the driver ---------------------------------------------------------------------------------

TEST_F(GpuFault, HostMemoryGoesOnWhileAnotherThreadHasTheDriversLock) {
  start("cuda", "cuda");
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0}, rounds{0}, host_rounds{0};
  std::thread vram([&] {
    Transfer write = prepare(TCPX_WRITE), read = prepare(TCPX_READ, true);
    while (!stop && bad == 0) {
      bad += !write.post().ok() || !write.wait(kLong).ok();
      bad += !read.post().ok() || !read.wait(kLong).ok();
      ++rounds;
    }
  });
  // Counted only while the lock is held: no VRAM transfer moves then.
  for (int hold = 0; hold < 4; ++hold) {
    fake_cuda()->hold_driver_lock(200);
    for (Stopwatch watch; watch.elapsed() < Ms{150}; ++host_rounds)
      if (!host_moves(hold % 2 == 0 ? TCPX_WRITE : TCPX_READ, kPiece)) ++bad;
  }
  stop = true;
  vram.join();
  EXPECT_EQ(bad, 0);
  EXPECT_GT(rounds, 0);
  EXPECT_GE(host_rounds, 40) << "they waited for the driver";
  expect_all_lanes();
  expect_works("afterwards");
}

TEST_F(GpuFault, NoPinnedMemoryIsSaidAndTheEngineGoesOn) {
  start("host", "host");
  auto memory = allocate("cuda", kBytes);
  tcpx_region region = 0;
  plan("host_memory:100000");
  Result result = pair->a.register_memory(memory->address(), kBytes, 0, &region);
  EXPECT_EQ(result.code(), TCPX_NO_MEMORY);
  EXPECT_NE(result.text().find("gpu_staging"), std::string::npos) << result.text();
  EXPECT_NE(result.text().find("CUDA error 2: "), std::string::npos) << result.text();
  expect_host_works();
  all_well();
  ASSERT_TRUE(succeeded(pair->a.register_memory(memory->address(), kBytes, 0, &region)));
  ASSERT_TRUE(succeeded(pair->a.deregister(region)));
}

TEST_F(GpuFault, WhatCannotBeMadeReadyIsSaidAndLeavesNothing) {
  auto memory = allocate("cuda:1", kBytes);
  tcpx_region region = 0;
  for (const char* call : {"cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2",
                           "cuStreamCreateWithPriority", "cuMemHostAlloc"})
    for (int n : {1, 2}) {
      SCOPED_TRACE(strf("{} {}", call, n));
      const uint64_t pinned = fake_cuda()->host_bytes();
      const int streams = fake_cuda()->streams_open();
      Engine engine = make_engine(fault_options());
      plan(strf("fail:{}@{}={}", call, n, kOutOfMemory));
      Result result = engine.register_memory(memory->address(), kBytes, 0, &region);
      all_well();
      if (!result.ok()) {
        EXPECT_EQ(result.code(), TCPX_NO_MEMORY);
        EXPECT_NE(result.text().find("CUDA error 2: "), std::string::npos) << result.text();
      }
      ASSERT_TRUE(succeeded(engine.register_memory(memory->address(), kBytes, 0, &region)));
      engine.destroy();
      EXPECT_EQ(fake_cuda()->host_bytes(), pinned);
      EXPECT_EQ(fake_cuda()->streams_open(), streams);
    }
}

// ---- kernels that do not start ------------------------------------------------------------------

TEST_F(GpuFault, KernelsThatAreHeldKeepNothingElse) {
  if (tcpx::gpu::kernel_image() == nullptr) GTEST_SKIP() << "built without nvcc";
  start("cuda", "cuda");
  plan("hold_kernels:0");
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    SCOPED_TRACE(op);
    expect_moves(op);
    fill(*source(op).memory, 0, kBytes, Pattern(90, op), 0);
    Transfer held = prepare(op, true);
    ASSERT_TRUE(succeeded(held.post()));
    std::this_thread::sleep_for(Ms{20});
    EXPECT_TRUE(held.poll().in_progress()) << "what has been handed over is not begun again";
    for (int round = 0; round < 5; ++round) expect_host_works();
    fake_cuda()->release();
    ASSERT_TRUE(succeeded(held.wait(kLong))) << held.error();
    for (uint64_t at = 0; at < kBytes; at += 2 * kPiece)
      ASSERT_EQ(mismatch(*target(op).memory, at, kPiece, Pattern(90, op), at), -1);
    expect_ours(*target(op).memory, 91, Ms{50});
    plan("hold_kernels:0");
  }
  all_well();
  expect_all_lanes();
  expect_works("afterwards");
}

// Neither the GPU's thread nor a loop spins for what does not move.
class GpuStandsStill : public GpuFault, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, GpuStandsStill, ::testing::Values("hang:1", "hold_kernels:0"));

TEST_P(GpuStandsStill, AndNoCoreIsKeptBusy) {
  const bool kernels = std::string(GetParam()) != "hang:1";
  if (kernels && tcpx::gpu::kernel_image() == nullptr) GTEST_SKIP() << "built without nvcc";
  start("host", "cuda");
  plan(GetParam());
  Transfer transfer = prepare(TCPX_WRITE, kernels);
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(eventually([] { return fake_cuda()->pending(0) > 0; }, Ms{2000}));
  std::this_thread::sleep_for(Ms{100});
  EXPECT_LT(busy_cores(Ms{500}), kFewCores);
  fake_cuda()->release();
  Stopwatch watch;
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  EXPECT_LT(watch.elapsed(), patience(200)) << "it is seen when it moves again";
  all_well();
  expect_works("afterwards");
}

// What comes after the first that was held goes by the copy engine, past it.
TEST_F(GpuFault, AfterOneKernelThatIsHeldCopiesServe) {
  if (tcpx::gpu::kernel_image() == nullptr) GTEST_SKIP() << "built without nvcc";
  start("cuda", "host");
  plan("hold_kernels:0");
  Transfer held = pair->prepare(TCPX_WRITE, kPiece);
  {
    std::vector<tcpx_local_piece> local;
    std::vector<tcpx_remote_piece> remote;
    for (uint64_t at = 0; at < 8 * kPiece; at += 2 * kPiece) {
      local.push_back({pair->memory_a.region, at, kPiece});
      remote.push_back({&pair->remote_b, at, kPiece});
    }
    ASSERT_TRUE(succeeded(pair->a.prepare(pair->b_at_a, TCPX_WRITE, local, remote, &held)));
  }
  ASSERT_TRUE(succeeded(held.post()));
  std::this_thread::sleep_for(patience(400));  // then it is known to be held
  ASSERT_GT(fake_cuda()->pending(0), 0u) << "it did not go by a kernel";
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    expect_moves(op);
    if (HasFailure()) break;
    expect_moves(op, true);
  }
  EXPECT_TRUE(held.poll().in_progress());
  fake_cuda()->release();
  ASSERT_TRUE(succeeded(held.wait(kLong))) << held.error();
}

// ---- memory -------------------------------------------------------------------------------------

TEST_P(GpuFaultAt, MemoryThatWasFreedCostsItsTransferOnly) {
  if (GetParam().scattered) GTEST_SKIP() << "a kernel's fault ends the context";
  start_here();
  Engine& engine = GetParam().at_initiator ? pair->a : pair->b;
  Local& here = GetParam().at_initiator ? pair->memory_a : pair->memory_b;
  here.memory->give_back();
  Transfer transfer = prepare(GetParam().op);
  ASSERT_TRUE(succeeded(transfer.post()));
  expect_copy_failed(transfer, text_here("CUDA error 1: "));
  expect_host_works();
  ASSERT_TRUE(succeeded(engine.deregister(here.region)));
  here = make_local(engine, kBytes, kReadWrite, 9, "cuda");
  if (!GetParam().at_initiator) pair->remote_b = describe(engine, here.region);
  expect_works("with other memory");
  expect_all_lanes();
}

// ---- few slots ----------------------------------------------------------------------------------

// Every lane of both engines wants slots of both kinds, in both directions.
TEST_F(GpuFault, FewSlotsAndBothDirectionsAtOnceEndWell) {
  start("cuda", "cuda",
        {{"gpu_staging", "1M"},
         {"gpu_slot", "64K"},
         {"io_threads", "2"},
         {"lanes", "2"},
         {"deadline", time_option(20'000)}});
  Local more_b = make_local(pair->b, kBytes, 0, 5, "cuda"),
        more_a = make_local(pair->a, kBytes, kReadWrite, 6, "cuda");
  tcpx_remote_region remote_a = describe(pair->a, more_a.region);
  std::vector<Transfer> all;
  for (int i = 0; i < 4; ++i)
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
      all.push_back(prepare(op, i % 2 == 1));
      Transfer back;
      ASSERT_TRUE(succeeded(pair->b.prepare(pair->a_at_b, op, {{more_b.region, 0, kBytes}},
                                            {{&remote_a, 0, kBytes}}, &back)));
      all.push_back(std::move(back));
    }
  for (int round = 0; round < smaller_if_sanitized(10, 3); ++round) {
    for (Transfer& transfer : all) ASSERT_TRUE(succeeded(transfer.post()));
    for (Transfer& transfer : all) ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  }
  all.clear();
  expect_all_lanes();
  ASSERT_TRUE(succeeded(pair->a.deregister(more_a.region)));
  ASSERT_TRUE(succeeded(pair->b.deregister(more_b.region)));
}

// Chunks are larger than all slots together would be.
TEST_F(GpuFault, AChunkLargerThanTheStagingIsMovedAllTheSame) {
  start("cuda", "cuda",
        {{"gpu_staging", "1M"}, {"gpu_slot", "64K"}, {"io_threads", "4"}, {"chunk_bytes", "2M"}});
}

}  // namespace
}  // namespace tcpx::test
