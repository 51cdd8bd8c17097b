// Lanes of the net path poll, each in a thread of its own. Where they outnumber the cores that they
// share with a peer on the same host, a transfer is faster on one of them (S33).
#include <set>
#include <thread>

#include "../support/engines.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = 8 << 20;

struct NetSpreading : testing::Test {
  // More than half the cores, whatever machine this is.
  const uint32_t lanes = std::min(64u, std::thread::hardware_concurrency() + 1);

  Options options(const char* striping) {
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
    return loopback_options({{"net_plugin", TCPX_TEST_EMULATOR_PATH},
                             {"require_path", "net"},
                             {"striping", striping},
                             {"chunk_bytes", "128K"},
                             {"lanes", std::to_string(lanes)}});
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

TEST_F(NetSpreading, ATransferStaysOnOneLaneWhereLanesOutnumberTheCores) {
  Pair pair(options("adaptive"));
  pair.allocate(kBytes);
  EXPECT_GT(run(pair, TCPX_WRITE, 0).size(), 1u) << "nothing is known of the lanes yet";
  for (uint64_t round = 1; round < 6; ++round)
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ})
      EXPECT_EQ(run(pair, op, round).size(), 1u) << "round " << round;
}

TEST_F(NetSpreading, RoundRobinUsesAllLanesNevertheless) {
  Pair pair(options("round_robin"));
  pair.allocate(kBytes);
  for (uint64_t round = 0; round < 3; ++round)
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) EXPECT_EQ(run(pair, op, round).size(), lanes);
}

}  // namespace
}  // namespace tcpx::test
