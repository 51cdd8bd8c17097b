// Lanes of the net path poll, each in a thread of its own. All of them carry what is long, also
// where there are fewer cores than lanes.
#include <sched.h>

#include <algorithm>
#include <set>

#include "../support/engines.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = 8 << 20;

struct NetSpreading : testing::Test {
  static constexpr uint32_t kLanes = 4;
  cpu_set_t mine;

  // Two cores, whatever machine this is.
  void SetUp() override {
    cpu_set_t two;
    ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
    CPU_ZERO(&two);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; ++cpu)
      if (CPU_ISSET(cpu, &mine)) CPU_SET(cpu, &two);
    ASSERT_EQ(sched_setaffinity(0, sizeof two, &two), 0);
  }
  void TearDown() override { sched_setaffinity(0, sizeof mine, &mine); }
  Options options(const char* striping) {
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
    return loopback_options({{"net_plugin", TCPX_TEST_EMULATOR_PATH},
                             {"require_path", "net"},
                             {"striping", striping},
                             {"chunk_bytes", "128K"},
                             {"lanes", std::to_string(kLanes)}});
  }
  // The lanes that carried it.
  static std::set<size_t> run(Pair& pair, tcpx_op op, uint64_t round) {
    fill(*pair.memory_a.memory, 0, kBytes, Pattern(op, round), 0);
    fill(*pair.memory_b.memory, 0, kBytes, Pattern(op, round + 1000), 0);
    Transfer transfer = pair.prepare(op, kBytes);
    EXPECT_TRUE(succeeded(transfer.post()));
    EXPECT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    Pattern moved(op, op == TCPX_WRITE ? round : round + 1000);
    EXPECT_EQ(mismatch(*pair.memory_a.memory, 0, kBytes, moved, 0), -1);
    EXPECT_EQ(mismatch(*pair.memory_b.memory, 0, kBytes, moved, 0), -1);
    std::set<size_t> used;
    nlohmann::json receipt = nlohmann::json::parse(transfer.receipt_json());
    for (size_t i = 0; i < receipt.at("lanes").size(); ++i)
      if (receipt["lanes"][i].at("chunks").get<uint64_t>() > 0) used.insert(i);
    return used;
  }
};

TEST_F(NetSpreading, ATransferGoesOverSeveralLanesHoweverFewTheCores) {
  Pair pair(options("adaptive"));
  pair.allocate(kBytes);
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    size_t most = 0;
    for (uint64_t round = 0; round < 50 && most < 2; ++round)
      most = std::max(most, run(pair, op, round).size());
    EXPECT_GT(most, 1u);
  }
}

TEST_F(NetSpreading, RoundRobinUsesAllLanes) {
  Pair pair(options("round_robin"));
  pair.allocate(kBytes);
  for (uint64_t round = 0; round < 3; ++round)
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) EXPECT_EQ(run(pair, op, round).size(), kLanes);
}

}  // namespace
}  // namespace tcpx::test
