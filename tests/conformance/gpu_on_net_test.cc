// Memory of a GPU where only a net path of host memory leads to the peer: it is refused with a code
// that says so, transfer by transfer, and nothing else is lost.
#include <gtest/gtest.h>

#include "rows.h"

namespace tcpx::test {
namespace {

struct Ends {
  const char* name;
  const char* a;
  const char* b;
};

class GpuOnNet : public ::testing::TestWithParam<std::tuple<const char*, Ends>> {
 protected:
  static constexpr uint64_t kBytes = 1'500'000;  // some chunks, and part of one
};
INSTANTIATE_TEST_SUITE_P(All, GpuOnNet,
                         ::testing::Combine(::testing::Values("host", "auto"),
                                            ::testing::Values(Ends{"Initiator", "cuda", "host"},
                                                              Ends{"Owner", "host", "cuda"},
                                                              Ends{"Both", "cuda", "cuda"})),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) +
                                  std::get<1>(test.param).name;
                         });

TEST_P(GpuOnNet, IsRefusedAndHostMemoryGoesOn) {
  const auto& [net_memory, ends] = GetParam();
  const Row row{"net", "net", "host", 2, 512 << 10, {{"net_memory", net_memory}}};
  row.set_environment();
  Pair pair(row.engine_options());
  constexpr uint32_t kBoth = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;
  pair.memory_a = make_local(pair.a, kBytes, 0, 1, "host");
  pair.memory_b = make_local(pair.b, kBytes, kBoth, 2, "host");
  pair.remote_b = describe(pair.b, pair.memory_b.region);
  const Local gpu_a = make_local(pair.a, kBytes, 0, 3, ends.a),
              gpu_b = make_local(pair.b, kBytes, kBoth, 4, ends.b);
  const tcpx_remote_region gpu_remote = describe(pair.b, gpu_b.region);
  for (uint64_t round = 1; round <= 3; ++round)
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
      SCOPED_TRACE(op == TCPX_WRITE ? "WRITE" : "READ");
      Transfer refused;
      ASSERT_TRUE(succeeded(pair.a.prepare(pair.b_at_a, op, {{gpu_a.region, 0, kBytes}},
                                           {{&gpu_remote, 0, kBytes}}, &refused)));
      ASSERT_TRUE(succeeded(refused.post()));
      Transfer host = pair.prepare(op, kBytes);
      const Local &from = op == TCPX_WRITE ? pair.memory_a : pair.memory_b,
                  &to = op == TCPX_WRITE ? pair.memory_b : pair.memory_a;
      fill(*from.memory, 0, kBytes, Pattern(7, 2 * round + op), 0);
      ASSERT_TRUE(succeeded(host.post()));
      EXPECT_EQ(refused.wait(kLong).code(), TCPX_PATH_UNAVAILABLE) << refused.error();
      ASSERT_TRUE(succeeded(host.wait(kLong))) << host.error();
      EXPECT_EQ(mismatch(*to.memory, 0, kBytes, Pattern(7, 2 * round + op), 0), -1);
    }
  EXPECT_EQ(mismatch(*gpu_a.memory, 0, kBytes, Pattern(3), 0), -1) << "nothing was moved";
  EXPECT_EQ(mismatch(*gpu_b.memory, 0, kBytes, Pattern(4), 0), -1);
  tcpx_peer_info info{};
  ASSERT_TRUE(succeeded(pair.a.peer_info(pair.b_at_a, &info)));
  EXPECT_EQ(info.state, TCPX_OK);
  EXPECT_EQ(info.lanes, 2u) << "no lane is lost";
}

}  // namespace
}  // namespace tcpx::test
