// A GPU that hangs, or that has no slot left, holds up what touches its memory. Host memory of the
// same peer and memory of another GPU go on, both ways, whoever of the two has that GPU.
#include "gpu_fixture.h"

namespace tcpx::test {
namespace {

class GpuShare : public GpuFault, public ::testing::WithParamInterface<GpuCase> {
 protected:
  // More than all windows of all lanes hold.
  static constexpr uint64_t kMuch = 24 << 20;
  static constexpr uint64_t kOther = 3 << 20;

  // Memory of the GPU that will hang, as the case has it, and of the other one at the same end.
  void start_here(const Options& more = {}) {
    start(GetParam().kind_a(), GetParam().kind_b(),
          merged(more, {{"io_threads", "1"}, {"deadline", time_option(20'000)}}));
    if (HasFailure()) return;
    const char* other = "cuda:1";
    hung_a_ = make_local(pair->a, kMuch, 0, 21, GetParam().kind_a());
    hung_b_ = make_local(pair->b, kMuch, kReadWrite, 22, GetParam().kind_b());
    hung_remote_ = describe(pair->b, hung_b_.region);
    other_a_ = make_local(pair->a, kOther, 0, 23, GetParam().at_initiator ? other : "host");
    other_b_ =
        make_local(pair->b, kOther, kReadWrite, 24, GetParam().at_initiator ? "host" : other);
    other_remote_ = describe(pair->b, other_b_.region);
    expect_other_works();  // its GPU is open
  }
  Transfer prepare_all(const Local& here, const tcpx_remote_region& there, uint64_t bytes,
                       tcpx_op op) {
    Transfer transfer;
    EXPECT_TRUE(succeeded(pair->a.prepare(pair->b_at_a, op, {{here.region, 0, bytes}},
                                          {{&there, 0, bytes}}, &transfer)));
    return transfer;
  }
  // As much as there is, and its first copy never ends. Nothing else may copy meanwhile.
  Transfer post_hung() {
    Local &from = GetParam().op == TCPX_WRITE ? hung_a_ : hung_b_,
          &to = GetParam().op == TCPX_WRITE ? hung_b_ : hung_a_;
    fill(*from.memory, 0, kMuch, Pattern(31), 0);
    fill(*to.memory, 0, kMuch, Pattern(32), 0);
    Transfer transfer = prepare_all(hung_a_, hung_remote_, kMuch, GetParam().op);
    plan("hang:1");
    EXPECT_TRUE(succeeded(transfer.post(Ms{120'000})));
    EXPECT_TRUE(eventually([] { return fake_cuda()->pending(0) > 0; }, Ms{1000}));
    std::this_thread::sleep_for(Ms{50});  // until every lane holds what it may
    return transfer;
  }
  void expect_hung_arrives(Transfer& transfer) {
    ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    const Local& to = GetParam().op == TCPX_WRITE ? hung_b_ : hung_a_;
    EXPECT_EQ(mismatch(*to.memory, 0, kMuch, Pattern(31), 0), -1);
  }
  void expect_other_works() {
    fill(*other_a_.memory, 0, kOther, Pattern(40, ++round_), 0);
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
      Transfer transfer = prepare_all(other_a_, other_remote_, kOther, op);
      ASSERT_TRUE(succeeded(transfer.post(patience(5'000))));
      ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    }
    ASSERT_EQ(mismatch(*other_b_.memory, 0, kOther, Pattern(40, round_), 0), -1);
  }
  // In a time that a GPU which stands still would not leave them.
  void expect_others_go_on() {
    for (int round = 0; round < 3 && !HasFailure(); ++round) {
      Stopwatch watch;
      expect_host_works();
      EXPECT_LT(watch.elapsed(), patience(1'000)) << "host memory was held up";
      watch = {};
      expect_other_works();
      EXPECT_LT(watch.elapsed(), patience(1'000)) << "the other GPU was held up";
    }
  }

  Local hung_a_, hung_b_, other_a_, other_b_;
  tcpx_remote_region hung_remote_{}, other_remote_{};

  // While a copy hangs, and it arrives when it goes on.
  void expect_others_go_on_with(const Options& more) {
    start_here(more);
    if (HasFailure()) return;
    Transfer hung = post_hung();
    expect_others_go_on();
    EXPECT_TRUE(hung.poll().in_progress());
    all_well();
    expect_hung_arrives(hung);
    expect_all_lanes();
  }

 private:
  uint64_t round_ = 0;
};
INSTANTIATE_TEST_SUITE_P(All, GpuShare, ::testing::ValuesIn(gpu_cases(false)),
                         ::testing::PrintToStringParamName());

TEST_P(GpuShare, AGpuThatHangsHoldsUpNoOthers) {
  expect_others_go_on_with({});
}

// Two slots of the size of a chunk for each way, for all lanes.
TEST_P(GpuShare, NorDoesOneWithoutSlots) {
  expect_others_go_on_with({{"gpu_staging", "1M"}});
}

TEST_P(GpuShare, NorWhereLanesTakeTurns) {
  expect_others_go_on_with({{"striping", "round_robin"}});
}

// The driver's lock, again and again: what moves is slow, and the rest is not.
TEST_P(GpuShare, HostMemoryGoesOnWhileTheDriversLockIsHeld) {
  start_here({{"gpu_staging", "1M"}});
  if (HasFailure()) return;
  Transfer much = prepare_all(hung_a_, hung_remote_, kMuch, GetParam().op);
  for (int round = 0; round < 3 && !HasFailure(); ++round) {
    ASSERT_TRUE(succeeded(much.post(Ms{60'000})));
    fake_cuda()->hold_driver_lock(300);
    Stopwatch watch;
    int moved = 0;
    for (; watch.elapsed() < Ms{250}; ++moved)
      ASSERT_TRUE(host_moves(moved % 2 == 0 ? TCPX_WRITE : TCPX_READ, kPiece));
    EXPECT_GT(moved, 20) << "they waited for the driver";
    ASSERT_TRUE(succeeded(much.wait(kLong))) << much.error();
  }
  expect_all_lanes();
}

// What is cancelled or loses its memory while it waits aside lands nowhere.
TEST_P(GpuShare, WhatWaitsForSlotsIsFenced) {
  start_here({{"gpu_staging", "1M"}, {"deadline", time_option(2'000)}});
  if (HasFailure()) return;
  Transfer hung = post_hung();
  // The copy may still touch memory of ours, or is of a WRITE that may land. Out of the owner's
  // memory, for data that nobody wants any more, it may go on.
  const bool is_fenced = GetParam().at_initiator || GetParam().op == TCPX_WRITE;
  EXPECT_EQ(hung.cancel(Ms{300}).ok(), !is_fenced);
  expect_host_works();
  all_well();
  ASSERT_TRUE(succeeded(hung.cancel(kLong)));
  Local& to = GetParam().op == TCPX_WRITE ? hung_b_ : hung_a_;
  expect_ours(*to.memory, 51, Ms{100});
  expect_works("afterwards");
  expect_all_lanes();
}

}  // namespace
}  // namespace tcpx::test
