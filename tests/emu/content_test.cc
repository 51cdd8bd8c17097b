// Every byte arrives at its place, whatever the fragments, sockets and sizes; every page comes
// back.
#include "plugin.h"

namespace tcpx::test {
namespace {

constexpr int kSizes[] = {0, 1, 4095, 4096, 4097, 65537, 524288};
constexpr int kBiggest = 524288;

// Sends `size` bytes and checks that all of them, and no others, are described.
void round(const Pair& pair, uint64_t ordinal, int size, const Registered& from, Pages& source,
           const Registered& to, Pages& target) {
  SCOPED_TRACE("ordinal " + std::to_string(ordinal) + " size " + std::to_string(size));
  Pattern pattern(7, ordinal);
  auto length = static_cast<uint64_t>(size);
  pattern.fill(source.data(), length, 0);
  target.poison();
  void* receive = irecv(pair, target.data(), kBiggest, to);
  void* send = isend(pair, source.data(), size, from);
  finish_both(send, receive);
  ASSERT_EQ(unpack(pair, ordinal, target.data()), length);
  ASSERT_EQ(pattern.mismatch(target.data(), length, 0), -1);
  for (uint64_t i = length; i < std::min<uint64_t>(length + 64, target.size()); ++i)
    ASSERT_EQ(target.data()[i], 0xCD) << "overrun at " << i;
  ASSERT_EQ(consume(pair, receive), 0) << PluginLog::all();
}

class Content : public ::testing::TestWithParam<std::tuple<const char*, int, bool>> {};

TEST_P(Content, EveryByteArrivesAndEveryPageComesBack) {
  auto [fragments, sockets, shuffle] = GetParam();
  Environment env({{"TCPX_EMU_FRAGMENTS", fragments},
                   {"NCCL_NSOCKS_PERTHREAD", std::to_string(sockets)},
                   {"TCPX_EMU_SHUFFLE", shuffle ? "1" : "0"}});
  ASSERT_EQ(env.init_result, 0) << PluginLog::all();
  uint64_t misuses = counters().misuses;
  Pages source(kBiggest), target(kBiggest);
  {
    Pair pair;
    ASSERT_NE(pair.receive, nullptr);
    Registered from(pair.send, source), to(pair.receive, target);
    uint64_t ordinal = 0;
    for (int repeat = 0; repeat < 3; ++repeat)
      for (int size : kSizes)
        ASSERT_NO_FATAL_FAILURE(round(pair, ordinal++, size, from, source, to, target));
  }
  EXPECT_EQ(counters().pool_pages_free, counters().pool_pages);
  EXPECT_EQ(counters().misuses, misuses) << extras().last_misuse();
}

std::string name_of(const ::testing::TestParamInfo<Content::ParamType>& info) {
  auto [fragments, sockets, shuffle] = info.param;
  return std::string(fragments) + "_" + std::to_string(sockets) + (shuffle ? "_shuffled" : "");
}

INSTANTIATE_TEST_SUITE_P(Plans, Content,
                         ::testing::Combine(::testing::Values("page", "mtu", "random", "mixed"),
                                            ::testing::Values(1, 2, 4, 8), ::testing::Bool()),
                         name_of);

}  // namespace
}  // namespace tcpx::test
