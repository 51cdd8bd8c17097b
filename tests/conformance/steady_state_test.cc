// No allocation in the steady state of the data path, on either side.
#include "alloc_counter.h"
#include "fixture.h"

namespace tcpx::test {
namespace {

class SteadyState : public ::testing::TestWithParam<std::tuple<uint32_t, tcpx_op, uint64_t>> {};

TEST_P(SteadyState, steady_state_allocates_nothing) {
  if (kSanitized) GTEST_SKIP() << "sanitizers replace operator new";
  auto [lanes, op, length] = GetParam();
  Pair pair(loopback_options({{"lanes", std::to_string(lanes)}}));
  pair.allocate(length);
  Transfer transfer = pair.prepare(op, length);
  auto cycle = [&](int rounds) {
    for (int i = 0; i < rounds; ++i)
      if (tcpx_post(transfer.raw(), nullptr) != TCPX_OK ||
          tcpx_wait(transfer.raw(), 10'000) != TCPX_OK)
        return false;
    return true;
  };
  ASSERT_TRUE(cycle(200));  // warm: pools are full, capacities have grown
  uint64_t before = allocations();
  ASSERT_TRUE(cycle(1000));
  EXPECT_EQ(allocations() - before, 0u) << "over 1000 posts of " << length << " bytes";
}

INSTANTIATE_TEST_SUITE_P(TcpHost, SteadyState,
                         ::testing::Combine(::testing::Values(1u, 4u),
                                            ::testing::Values(TCPX_WRITE, TCPX_READ),
                                            ::testing::Values(uint64_t{4096}, uint64_t{1} << 20)),
                         [](const auto& each) {
                           return std::string(op_name(std::get<1>(each.param))) +
                                  (std::get<2>(each.param) == 4096 ? "_4KiB_" : "_1MiB_") +
                                  std::to_string(std::get<0>(each.param)) + "lanes";
                         });

TEST(AllocCounter, SeesAllocations) {
  if (kSanitized) GTEST_SKIP() << "sanitizers replace operator new";
  uint64_t before = allocations();
  void* memory = ::operator new(100);  // a new-expression may be optimised away
  uint64_t seen = allocations() - before;
  ::operator delete(memory);
  EXPECT_EQ(seen, 1u);
}

}  // namespace
}  // namespace tcpx::test
