// Lanes of the net path poll, each in a thread of its own: also where they outnumber the cores all
// of them are used, and content is right (S33).
#include <sched.h>

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

TEST_F(NetSpreading, RoundRobinUsesAllLanesOfTwoCores) {
  Pair pair(options("round_robin"));
  pair.allocate(kBytes);
  for (uint64_t round = 0; round < 3; ++round)
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) EXPECT_EQ(run(pair, op, round).size(), kLanes);
}

TEST_F(NetSpreading, AdaptiveLanesOfTwoCoresMoveTheRightBytes) {
  Pair pair(options("adaptive"));
  pair.allocate(kBytes);
  for (uint64_t round = 0; round < 5; ++round)
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) EXPECT_GE(run(pair, op, round).size(), 1u);
}

}  // namespace
}  // namespace tcpx::test
