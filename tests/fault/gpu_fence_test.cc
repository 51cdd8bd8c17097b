// Fences against copies of GPU memory that are under way: they wait for those, say so where one
// does not end, and nothing lands or is read after them. (fence_test.cc runs with GPU memory, too.)
#include <linux/tcp.h>

#include <map>

#include "gpu_fixture.h"

namespace tcpx::test {
namespace {

class GpuFence : public GpuFault, public ::testing::WithParamInterface<GpuCase> {
 protected:
  static constexpr int kCopyUs = 4'000;

  void start_here(const Options& more = {}) {
    start(GetParam().kind_a(), GetParam().kind_b(), more);
  }
  Engine& engine() { return GetParam().at_initiator ? pair->a : pair->b; }
  Local& local() { return GetParam().at_initiator ? pair->memory_a : pair->memory_b; }
  // Posted, and a copy of it is under way.
  Transfer post_slow() {
    fill(*source(GetParam().op).memory, 0, kBytes, Pattern(1), 0);
    fill(*target(GetParam().op).memory, 0, kBytes, Pattern(2), 0);
    Transfer transfer = prepare(GetParam().op, GetParam().scattered);
    // Kernels this slow are taken for held ones: then pieces are copied one by one.
    const int scattered_us = kCopyUs / 16;
    plan(strf("copy_us:{};kernel_us:{}", GetParam().scattered ? scattered_us : kCopyUs, kCopyUs));
    EXPECT_TRUE(succeeded(transfer.post()));
    EXPECT_TRUE(eventually([] { return fake_cuda()->pending(0) > 0; }, Ms{1000}));
    return transfer;
  }
  // The memory is the caller's, at both ends or at the GPU's.
  void expect_fence_held(bool both_ends, int round) {
    fake_cuda()->clear_plan();
    Local &from = source(GetParam().op), &to = target(GetParam().op);
    if (both_ends || &from == &local()) {
      fill(*from.memory, 0, kBytes, Pattern(100 + round, kAfter), 0);
      std::this_thread::sleep_for(Ms{20});
      expect_no_trace(*to.memory, 100 + round);
    }
    if (both_ends || &to == &local()) expect_ours(*to.memory, 200 + round, Ms{60});
  }
  void expect_goes_on() {
    all_well();
    expect_works("afterwards");
    expect_all_lanes();
  }
};
INSTANTIATE_TEST_SUITE_P(All, GpuFence, ::testing::ValuesIn(gpu_cases(true)),
                         ::testing::PrintToStringParamName());

TEST_P(GpuFence, CancelWaitsForCopies) {
  start_here();
  for (int round = 0; round < 3 && !HasFailure(); ++round) {
    Transfer transfer = post_slow();
    std::this_thread::sleep_for(Ms{round});
    ASSERT_TRUE(succeeded(transfer.cancel(kLong)));
    expect_fence_held(true, round);
  }
  expect_goes_on();
}

TEST_P(GpuFence, ReleaseWaitsForCopies) {
  start_here();
  for (int round = 0; round < 3 && !HasFailure(); ++round) {
    Transfer transfer = post_slow();
    std::this_thread::sleep_for(Ms{round});
    transfer.release();
    if (GetParam().at_initiator) expect_fence_held(false, round);
    eventually([] { return fake_cuda()->pending(0) == 0; }, Ms{1000});
    fake_cuda()->clear_plan();
    std::this_thread::sleep_for(Ms{30});  // what was out still lands at the peer
  }
  expect_goes_on();
}

TEST_P(GpuFence, DeregisterAndSuspendWaitForCopies) {
  start_here();
  for (int round = 0; round < 4 && !HasFailure(); ++round) {
    const bool suspends = round % 2 == 1;
    Transfer transfer = post_slow();
    std::this_thread::sleep_for(Ms{round});
    ASSERT_TRUE(succeeded(suspends ? engine().suspend(local().region)
                                   : engine().deregister(local().region)));
    expect_fence_held(false, round);
    const tcpx_code code = transfer.wait(kLong).code();
    EXPECT_TRUE(code == TCPX_REGION_REVOKED || code == TCPX_STALE_REGION || code == TCPX_OK)
        << tcpx_code_name(code);
    (void)transfer.cancel(kLong);
    transfer.release();
    if (suspends) {
      ASSERT_TRUE(succeeded(engine().resume(local().region)));
    } else {
      ASSERT_TRUE(succeeded(engine().register_memory(local().memory->address(), kBytes, kReadWrite,
                                                     &local().region)));
      if (!GetParam().at_initiator) pair->remote_b = describe(pair->b, local().region);
    }
  }
  expect_goes_on();
}

// ---- a copy that never ends ---------------------------------------------------------------------

class GpuHang : public GpuFence {
 protected:
  Transfer post_hung() {
    Transfer transfer = prepare(GetParam().op);
    plan("hang:2");
    EXPECT_TRUE(succeeded(transfer.post(Ms{60'000})));
    EXPECT_TRUE(eventually([] { return fake_cuda()->pending(0) > 0; }, Ms{1000}));
    std::this_thread::sleep_for(Ms{30});
    return transfer;
  }
};
INSTANTIATE_TEST_SUITE_P(All, GpuHang, ::testing::ValuesIn(gpu_cases(false)),
                         ::testing::PrintToStringParamName());

TEST_P(GpuHang, FencesSayThatTheMemoryIsInUseAndHoldLater) {
  start_here({{"deadline", time_option(1'000)}});
  Transfer transfer = post_hung();
  if (GetParam().at_initiator) {
    Stopwatch watch;
    Result result = transfer.cancel(Ms{300});
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
    EXPECT_NE(result.text().find("do not free it"), std::string::npos) << result.text();
    EXPECT_LT(watch.elapsed(), patience(1'200));
  }
  Stopwatch watch;
  Result result = engine().deregister(local().region);
  EXPECT_EQ(result.code(), TCPX_DEADLINE) << result.text();
  EXPECT_NE(result.text().find("do not free it"), std::string::npos) << result.text();
  EXPECT_LT(watch.elapsed(), patience(2'000));
  expect_host_works();
  expect_all_lanes();
  // It ends at last.
  fake_cuda()->release();
  ASSERT_TRUE(succeeded(engine().deregister(local().region)));
  expect_fence_held(false, 1);
  (void)transfer.cancel(kLong);
  ASSERT_TRUE(succeeded(
      engine().register_memory(local().memory->address(), kBytes, kReadWrite, &local().region)));
  if (!GetParam().at_initiator) pair->remote_b = describe(pair->b, local().region);
  expect_goes_on();
}

// The end of a session is no fence for a copy that does not end: it says so, and deregister is one.
class GpuHangAtTheEnd : public GpuHang {};
INSTANTIATE_TEST_SUITE_P(Both, GpuHangAtTheEnd,
                         ::testing::Values(GpuCase{TCPX_WRITE, true, false},
                                           GpuCase{TCPX_WRITE, false, false}),
                         ::testing::PrintToStringParamName());

TEST_P(GpuHangAtTheEnd, DisconnectSaysThatTheMemoryIsInUseAndDeregisterTellsWhenNot) {
  start_here({{"deadline", time_option(1'000)}});
  Transfer transfer = post_hung();
  std::vector<Transfer> behind;
  for (int i = 0; i < 30; ++i) {
    behind.push_back(pair->prepare(TCPX_WRITE, kPiece));
    ASSERT_TRUE(succeeded(behind.back().post(Ms{60'000})));
  }
  Stopwatch watch;
  Result result = engine().disconnect(GetParam().at_initiator ? pair->b_at_a : pair->a_at_b);
  EXPECT_EQ(result.code(), TCPX_DEADLINE) << result.text();
  EXPECT_NE(result.text().find("do not free it"), std::string::npos) << result.text();
  EXPECT_LT(watch.elapsed(), Ms{14'000}) << "10 s for moves, and what an end takes, not each of 31";
  EXPECT_EQ(engine().deregister(local().region).code(), TCPX_DEADLINE);
  fake_cuda()->release();
  ASSERT_TRUE(succeeded(engine().deregister(local().region)));
  expect_fence_held(false, 1);
  EXPECT_FALSE(transfer.wait(kLong).ok());
}

// What the peer has taken of every connection of this process.
std::map<int, uint64_t> bytes_taken() {
  std::map<int, uint64_t> out;
  for (int fd : connected_sockets()) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
      out[fd] = info.tcpi_bytes_acked;
  }
  return out;
}

// The initiator may do with the chunks of a lost lane what it likes as soon as it hears that the
// lane is closed at the target: it is not as long as one is still being copied into place.
TEST_F(GpuFault, ALaneThatBreaksIsNotClosedBeforeItsCopiesAreOver) {
  constexpr uint64_t kOneChunk = 16 << 10;
  start("host", "cuda", {{"deadline", time_option(60'000)}});
  Transfer transfer = pair->prepare(TCPX_WRITE, kOneChunk);
  std::map<int, uint64_t> before = bytes_taken();
  plan("hang:1");
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(eventually([] { return fake_cuda()->pending(0) > 0; }, Ms{2000}));
  int carried_by = -1;
  ASSERT_TRUE(eventually([&] {
    for (auto [fd, bytes] : bytes_taken())
      if (bytes - before[fd] >= kOneChunk) carried_by = fd;
    return carried_by != -1;
  }));
  ASSERT_EQ(::shutdown(carried_by, SHUT_RDWR), 0);
  ASSERT_TRUE(eventually([&] { return counter(pair->a, "lanes_lost") == 1; }));
  Result result = transfer.cancel(patience(1'000));
  EXPECT_FALSE(result.ok()) << "its copy can still land";
  EXPECT_GT(fake_cuda()->pending(0), 0u);
  fake_cuda()->release();
  ASSERT_TRUE(succeeded(transfer.cancel(kLong)));
  expect_ours(*pair->memory_b.memory, 3, Ms{60});
  all_well();
  expect_works("afterwards, over the lane that is left");
}

TEST_F(GpuFault, AnEngineWithACopyThatNeverEndsIsDestroyedInTime) {
  start("cuda", "host");
  Transfer transfer = prepare(TCPX_WRITE);
  plan("hang:2");
  ASSERT_TRUE(succeeded(transfer.post(Ms{60'000})));
  ASSERT_TRUE(eventually([] { return fake_cuda()->pending(0) > 0; }, Ms{1000}));
  std::this_thread::sleep_for(Ms{30});
  const uint64_t pinned = fake_cuda()->host_bytes();
  Stopwatch watch;
  pair->a.destroy();
  EXPECT_LT(watch.elapsed(), Ms{15'000}) << "10 s for moves, and what else an end takes";
  EXPECT_EQ(fake_cuda()->host_bytes(), pinned) << "what the copy still uses was freed";
  fake_cuda()->release();
}

}  // namespace
}  // namespace tcpx::test
