#include "base/ids.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <vector>

namespace tcpx {
namespace {

TEST(RandomBytes, FillsAnySizeAndDoesNotRepeat) {
  EXPECT_TRUE(random_bytes({}).ok());
  // 64 KiB: more than getrandom gives without a chance of interruption.
  std::vector<uint8_t> large(64 << 10);
  ASSERT_TRUE(random_bytes(large).ok());
  std::set<uint8_t> values(large.end() - 4096, large.end());
  EXPECT_GT(values.size(), 200u) << "the tail was not filled";

  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    std::array<uint8_t, 16> id{};
    ASSERT_TRUE(random_bytes(id).ok());
    EXPECT_TRUE(seen.insert(to_hex(id)).second);
  }
}

TEST(Hex, GoesBothWays) {
  const std::array<uint8_t, 4> bytes = {0x00, 0x0f, 0xa5, 0xff};
  EXPECT_EQ(to_hex(bytes), "000fa5ff");
  EXPECT_EQ(to_hex({}), "");
  std::array<uint8_t, 4> back{};
  EXPECT_TRUE(from_hex("000fa5ff", back));
  EXPECT_EQ(back, bytes);
  EXPECT_TRUE(from_hex("000FA5Ff", back));
  EXPECT_EQ(back, bytes);
}

TEST(Hex, RefusesOtherTextAndLeavesTheOutputAlone) {
  std::array<uint8_t, 4> out = {1, 2, 3, 4};
  for (auto text : {"", "000fa5f", "000fa5ff0", "000fa5fg", "0x0fa5ff", " 00fa5ff", "-00fa5ff"}) {
    EXPECT_FALSE(from_hex(text, out)) << text;
  }
  EXPECT_EQ(out, (std::array<uint8_t, 4>{1, 2, 3, 4}));
}

}  // namespace
}  // namespace tcpx
