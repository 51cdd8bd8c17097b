// Very many requests through the net path: the windows are credits, so strict mode never refuses
// one (S22), and they are kept full. The emulator's own counters are the witness.
#include "../support/emulator.h"
#include "../support/engines.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kRequest = 4096;
constexpr uint64_t kWindow = 16;  // all that a comm has, so that no smaller one is full earlier
constexpr uint64_t kBytes = smaller_if_sanitized<uint64_t>(128 << 20, 16 << 20);
// A million takes half a minute: TCPX_TEST_LONG=1.
uint64_t posts_wanted() {
  return long_tests() ? 1'000'000 : 100'000;
}

TEST(NetWindow, ManyPostsWithoutARefusalAndTheWindowsStayFull) {
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
  Pair pair(loopback_options({{"net_plugin", TCPX_TEST_EMULATOR_PATH},
                              {"require_path", "net"},
                              {"net_chunk", "4K"},
                              {"net_send_window", std::to_string(kWindow)},
                              {"chunk_bytes", "1M"},
                              {"lanes", "2"}}));
  pair.allocate(kBytes);
  uint64_t posts = 0;
  for (uint64_t round = 0; posts < posts_wanted(); ++round, posts += kBytes / kRequest) {
    fill(*pair.memory_a.memory, 0, kBytes, Pattern(1, round), 0);
    Transfer transfer = pair.prepare(round % 4 == 3 ? TCPX_READ : TCPX_WRITE, kBytes);
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    if (round % 4 == 3) continue;
    ASSERT_EQ(mismatch(*pair.memory_b.memory, 0, kBytes, Pattern(1, round), 0), -1);
  }
  tcpx_emu_counters seen = emulator_counters(TCPX_TEST_EMULATOR_PATH);
  EXPECT_GE(seen.sends, posts);
  EXPECT_GE(seen.receives, posts);
  EXPECT_EQ(seen.refusals, 0u);
  EXPECT_EQ(seen.misuses, 0u);
  EXPECT_EQ(seen.consumed, seen.receives) << "every receive, and no send";
  uint64_t sends = 0, receives = 0;
  for (Engine* engine : {&pair.a, &pair.b}) {
    nlohmann::json of_one = counters(*engine);
    for (auto& lane : of_one["peers"][0]["lanes"]) {
      sends += lane.at("send_requests").get<uint64_t>();
      receives += lane.at("receive_requests").get<uint64_t>();
      EXPECT_EQ(lane.at("receives_consumed"), lane.at("receive_requests"));
    }
  }
  EXPECT_EQ(sends, seen.sends) << "what we tell is what the plugin saw";
  EXPECT_EQ(receives, seen.receives);
  nlohmann::json all = counters(pair.a);
  ASSERT_EQ(all["peers"][0]["lanes"].size(), 2u);
  for (auto& lane : all["peers"][0]["lanes"]) {
    double occupancy = lane.value("send_window_occupancy", 0.0);
    std::printf(
        "lane %d: send window kept %.3f full; longest without test(): %.1f us, more than 100 us "
        "%llu times\n",
        lane["index"].get<int>(), occupancy, static_cast<double>(seen.max_test_gap_ns) / 1000,
        static_cast<unsigned long long>(seen.late_tests));
    EXPECT_GE(occupancy, 0.9);
  }
}

}  // namespace
}  // namespace tcpx::test
