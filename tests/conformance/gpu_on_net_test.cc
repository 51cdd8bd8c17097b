// Memory of a GPU where only a net path of host memory leads to the peer: it is refused with a code
// that says so, transfer by transfer, and nothing else is lost.
#include <gtest/gtest.h>

#include "rows.h"

namespace tcpx::test {
namespace {

struct Ends {
  const char* name;
  const char* net_memory;
  const char* a;
  const char* b;
};
void PrintTo(const Ends& ends, std::ostream* out) {
  *out << ends.name;
}

class GpuOnNet : public ::testing::TestWithParam<Ends> {
 protected:
  static constexpr uint64_t kBytes = 1'500'000;  // some chunks, and part of one
};
INSTANTIATE_TEST_SUITE_P(All, GpuOnNet,
                         ::testing::Values(Ends{"HostInitiator", "host", "cuda", "host"},
                                           Ends{"HostOwner", "host", "host", "cuda"},
                                           Ends{"HostBoth", "host", "cuda", "cuda"},
                                           Ends{"AutoInitiator", "auto", "cuda", "host"},
                                           Ends{"AutoOwner", "auto", "host", "cuda"},
                                           Ends{"AutoBoth", "auto", "cuda", "cuda"}),
                         ::testing::PrintToStringParamName());

TEST_P(GpuOnNet, IsRefusedAndHostMemoryGoesOn) {
  const Ends& ends = GetParam();
  const Row row{"net", "net", "host", 2, 512 << 10, {{"net_memory", ends.net_memory}}};
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
