// What every check of content stands on.
#include "../support/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace tcpx::test {
namespace {

// Longer than a block, at every place in a word.
constexpr size_t kPatternBytes = 4096 + 4096 + 13;

TEST(Pattern, EveryByteThatDiffersIsFoundWhereItIs) {
  for (uint64_t position : {0, 1, 7, 4095}) {
    std::vector<uint8_t> bytes(kPatternBytes);
    const Pattern pattern(1, 2);
    pattern.fill(bytes.data(), bytes.size(), position);
    ASSERT_EQ(pattern.mismatch(bytes.data(), bytes.size(), position), -1);
    for (size_t at = 0; at < bytes.size(); at += at % 4096 < 20 ? 1 : 97) {
      bytes[at] ^= 1;
      ASSERT_EQ(pattern.mismatch(bytes.data(), bytes.size(), position), static_cast<int64_t>(at));
      bytes[at] ^= 1;
    }
  }
}

TEST(Pattern, OtherPlacesSeedsAndRoundsAreOthers) {
  std::vector<uint8_t> bytes(kPatternBytes);
  Pattern(1, 2).fill(bytes.data(), bytes.size(), 16);
  EXPECT_EQ(Pattern(1, 2).mismatch(bytes.data() + 5, 1000, 21), -1) << "a part of it";
  for (const auto& [seed, round, position] : {std::tuple(2, 2, 16), {1, 3, 16}, {1, 2, 24}}) {
    const int64_t bad = Pattern(seed, round).mismatch(bytes.data(), bytes.size(), position);
    EXPECT_TRUE(bad >= 0 && bad < 8) << bad;
  }
}

TEST(Digest, DependsOnEveryByteAndOnThePlaceOfEveryWord) {
  std::vector<uint8_t> bytes(kPatternBytes);
  Pattern(3).fill(bytes.data(), bytes.size(), 0);
  const uint64_t right = Digest::of(bytes.data(), bytes.size());
  for (size_t at = 0; at < bytes.size(); at += at % 4096 < 20 || at > 8190 ? 1 : 97) {
    bytes[at] ^= 0x80;
    ASSERT_NE(Digest::of(bytes.data(), bytes.size()), right) << at;
    bytes[at] ^= 0x80;
  }
  for (size_t at : {0, 4088, 8176}) {
    std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                     bytes.begin() + static_cast<std::ptrdiff_t>(at) + 8, bytes.begin() + 2048);
    EXPECT_NE(Digest::of(bytes.data(), bytes.size()), right) << at;
    std::swap_ranges(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                     bytes.begin() + static_cast<std::ptrdiff_t>(at) + 8, bytes.begin() + 2048);
  }
  EXPECT_NE(Digest::of(bytes.data(), bytes.size() - 1), right);
}

}  // namespace
}  // namespace tcpx::test
