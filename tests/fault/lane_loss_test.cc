// A lane that breaks mid-transfer costs a lane, not the transfer; the receipt says so.
#include "../support/emulator.h"
#include "cut_lanes.h"
#include "fault_fixture.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = smaller_if_sanitized<uint64_t>(128 << 20, 64 << 20);

class LaneLoss : public Fault, public ::testing::WithParamInterface<tcpx_op> {
 protected:
  void SetUp() override {
    engine = make_engine(fault_options({{"lanes", "4"}, {"chunk_bytes", "256K"}}));
    victim.create(fault_options({{"lanes", "4"}}));
    remote = victim.memory("m", kBytes, kReadWrite, 2);
    local = make_local(engine, kBytes, 0, 1);
    join();
  }
  void join() {
    peer = connect(victim.info());
    ASSERT_TRUE(succeeded(engine.prepare(peer, GetParam(), {{local.region, 0, kBytes}},
                                         {{&remote, 0, kBytes}}, &transfer)));
  }
  void TearDown() override {
    transfer.release();
    engine.destroy();
    const char* plugin = std::getenv("TCPX_TEST_NET_PLUGIN");
    if (plugin == nullptr || !is_emulator(plugin)) return;
    // Lanes that break in the middle leave no receive unconsumed and no page of the pool behind.
    tcpx_emu_counters seen = emulator_counters(plugin);
    EXPECT_EQ(seen.misuses, 0u) << emulator(plugin).last_misuse();
    EXPECT_EQ(seen.pool_pages_free, seen.pool_pages);
  }
  // What is right must have come with the next transfer.
  void wipe_destination() {
    if (GetParam() == TCPX_WRITE) {
      ASSERT_TRUE(victim.call("sentinel m 60 0").ok());
    } else {
      fill(*local.memory, 0, kBytes, Pattern(60), 0);
    }
  }
  // A transfer that was done before it could be met: as if it had not been.
  void forget_that_one() {
    ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    ASSERT_TRUE(victim.call("next {}", patience(2'000).count()).ok());
    wipe_destination();
  }
  // Posts, and comes back in the middle of the transfer, with the victim stopped there: what has
  // not arrived by then stays away. On a busy machine it may be over before; then once more.
  void post_and_freeze_midway(std::string_view notice) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      ASSERT_TRUE(succeeded(transfer.post_notify(notice)));
      std::this_thread::sleep_for(Ms{2});
      if (transfer.poll().in_progress()) {
        victim.freeze();
        if (transfer.poll().in_progress()) return;
        victim.thaw();
      }
      ASSERT_NO_FATAL_FAILURE(forget_that_one());
    }
    FAIL() << "not one of " << kAttempts << " transfers was still under way";
  }
  // The last bytes of the transfer were here already when the victim was stopped, and the lanes
  // have been cut: once more, with new lanes.
  void start_anew() {
    ASSERT_NO_FATAL_FAILURE(forget_that_one());
    transfer.release();
    ASSERT_TRUE(succeeded(engine.disconnect(peer)));
    join();
  }
  void cut_midway(std::string_view notice, size_t count) {
    until_under_way([&](bool* met) {
      ASSERT_NO_FATAL_FAILURE(post_and_freeze_midway(notice));
      cut_lanes(count);
      auto all_lost = [&] { return transfer.receipt().lanes_lost == count; };
      EXPECT_TRUE(eventually([&] { return all_lost() || !transfer.poll().in_progress(); }));
      *met = all_lost();
      victim.thaw();
      if (!*met) start_anew();
    });
  }
  void expect_right_content() {
    if (GetParam() == TCPX_WRITE) {
      EXPECT_EQ(victim.check("m", 0, kBytes, 1, 0, 0), "");
    } else {
      EXPECT_EQ(mismatch(*local.memory, 0, kBytes, Pattern(2), 0), -1);
    }
  }
  Peer victim;
  Local local;
  tcpx_remote_region remote{};
  tcpx_peer peer = 0;
  Transfer transfer;
};

TEST_P(LaneLoss, OneOfFourMidTransferIsSurvivedAndInTheReceipt) {
  ASSERT_NO_FATAL_FAILURE(cut_midway("whole", 1));
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  expect_right_content();
  tcpx_receipt receipt = transfer.receipt();
  EXPECT_EQ(receipt.lanes_lost, 1u);
  // Whether the lane had a chunk under way just then is chance; tests/integration/netns_test.py
  // cuts a link under load and looks at retries.
  EXPECT_EQ(receipt.bytes, kBytes);
  tcpx_peer_info info{};
  ASSERT_TRUE(succeeded(engine.peer_info(peer, &info)));
  EXPECT_EQ(info.state, TCPX_OK);
  EXPECT_EQ(victim("next 2000").find(to_hex(std::string_view("whole"))) != std::string::npos, true);
  EXPECT_EQ(victim.call("next 50").code, TCPX_IN_PROGRESS) << "exactly once, also with a lost lane";
  // What was sent again must not land after the transfer was done.
  if (GetParam() == TCPX_WRITE) {
    Reply reply = victim.call("sentinel m 9 300");
    EXPECT_TRUE(reply.ok()) << reply.text;
  }
  ASSERT_TRUE(succeeded(transfer.post()));  // and the rest keeps working
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  EXPECT_EQ(transfer.receipt().retries, 0u);
}

TEST_P(LaneLoss, ThreeOfFourAreSurvivedToo) {
  ASSERT_NO_FATAL_FAILURE(cut_midway("three", 3));
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  expect_right_content();
  EXPECT_EQ(transfer.receipt().lanes_lost, 3u);
}

TEST_P(LaneLoss, AllFourEndThePeer) {
  until_under_way([&](bool* met) {
    ASSERT_NO_FATAL_FAILURE(post_and_freeze_midway("all"));
    Stopwatch watch;
    cut_lanes(4);
    tcpx_code code = transfer.wait(kLong).code();
    EXPECT_LT(watch.elapsed(), kNoticed);
    victim.thaw();
    *met = code != TCPX_OK;
    if (!*met) return start_anew();
    EXPECT_EQ(code, TCPX_PEER_DISCONNECTED) << tcpx_code_name(code);
    EXPECT_EQ(state_of(peer), TCPX_PEER_DISCONNECTED);
  });
}

TEST_P(LaneLoss, ACancelWhileALaneBreaksIsStillAFence) {
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(succeeded(transfer.post()));
    std::this_thread::sleep_for(Ms{5 + round});
    cut_lanes(1);
    tcpx_code code = transfer.cancel(kLong).code();
    ASSERT_EQ(code, TCPX_OK) << tcpx_code_name(code);
    if (GetParam() == TCPX_WRITE) {
      Reply reply = victim.call("sentinel m {} 100", round);
      ASSERT_TRUE(reply.ok()) << reply.text;
    } else {
      Pattern sentinel(50, static_cast<uint64_t>(round));
      fill(*local.memory, 0, kBytes, sentinel, 0);
      std::this_thread::sleep_for(Ms{100});
      ASSERT_EQ(mismatch(*local.memory, 0, kBytes, sentinel, 0), -1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, LaneLoss, ::testing::Values(TCPX_WRITE, TCPX_READ),
                         [](const auto& each) {
                           return each.param == TCPX_READ ? "READ" : "WRITE";
                         });

}  // namespace
}  // namespace tcpx::test
