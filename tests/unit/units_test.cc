#include "base/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tcpx {
namespace {

using ::testing::HasSubstr;
using namespace std::string_view_literals;

TEST(ParseSize, TakesPowersOfTwo) {
  const std::pair<std::string_view, uint64_t> cases[] = {
      {"0", 0},
      {"1", 1},
      {"007", 7},
      {"4096B", 4096},
      {"512K", 512ull << 10},
      {"512k", 512ull << 10},
      {"512Ki", 512ull << 10},
      {"4MiB", 4ull << 20},
      {"4mib", 4ull << 20},
      {"1G", 1ull << 30},
      {"2T", 2ull << 40},
      {"18446744073709551615", UINT64_MAX},
      {"16777215T", 16777215ull << 40},
  };
  for (auto& [text, want] : cases) {
    uint64_t got = 99;
    Status s = parse_size(text, &got);
    EXPECT_TRUE(s.ok()) << text << ": " << s.text();
    EXPECT_EQ(got, want) << text;
  }
}

TEST(ParseSize, RefusesWhatIsNotOneAndSaysSo) {
  const std::string_view cases[] = {
      "",          "K",
      "-1",        "+1",
      " 1",        "1 ",
      "1 K",       "1.5G",
      "0x10",      "1e3",
      "KB",        "1KB",
      "1GB",       "1KK",
      "1KiBB",     "1iB",
      "1i",        "1X",
      "１",        "1K\0"sv,
      "1\n",       "18446744073709551616",
      "16777216T", "99999999999999999999999999999999G",
  };
  for (auto text : cases) {
    uint64_t got = 99;
    Status s = parse_size(text, &got);
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << text;
    EXPECT_EQ(got, 99u) << text;
    EXPECT_THAT(s.text(), HasSubstr("e.g. 512K"));
  }
}

TEST(ParseSize, ErrorShowsTheTextEscapedAndCut) {
  uint64_t got = 0;
  EXPECT_THAT(parse_size("1\x1bQ", &got).text(), HasSubstr("\"1\\x1bQ\""));
  std::string text = parse_size(std::string(1 << 20, 'x'), &got).text();
  EXPECT_LT(text.size(), 300u);
}

TEST(ParseTime, TakesUnits) {
  const std::pair<std::string_view, Nanos> cases[] = {
      {"0", 0},
      {"0s", 0},
      {"100ns", 100},
      {"250us", 250'000},
      {"5ms", 5'000'000},
      {"30s", 30 * kSecond},
      {"2m", 120 * kSecond},
      {"24h", 86400 * kSecond},
      {"9223372036854775807ns", INT64_MAX},
  };
  for (auto& [text, want] : cases) {
    Nanos got = -1;
    Status s = parse_time(text, &got);
    EXPECT_TRUE(s.ok()) << text << ": " << s.text();
    EXPECT_EQ(got, want) << text;
  }
}

TEST(ParseTime, RefusesWhatIsNotOneAndSaysSo) {
  const std::string_view cases[] = {
      "",
      "s",
      "5",
      "-5s",
      "5 s",
      "5S",
      "5sec",
      "1.5s",
      "5µs",
      "5msms",
      "1d",
      "9223372036854775808ns",
      "9223372037s",
      "99999999999999999999s",
      "5000000h",
  };
  for (auto text : cases) {
    Nanos got = -1;
    Status s = parse_time(text, &got);
    EXPECT_EQ(s.code(), TCPX_BAD_CONFIG) << text;
    EXPECT_EQ(got, -1) << text;
    EXPECT_THAT(s.text(), HasSubstr("e.g. 250us"));
  }
}

TEST(ParseCount, TakesDigitsOnly) {
  uint64_t got = 99;
  EXPECT_TRUE(parse_count("18446744073709551615", &got).ok());
  EXPECT_EQ(got, UINT64_MAX);
  for (auto text : {"", "-0", "1K", "0x1", "1 ", "18446744073709551616", "eight"}) {
    EXPECT_EQ(parse_count(text, &got).code(), TCPX_BAD_CONFIG) << text;
  }
}

TEST(Format, IsShortAndParsesBack) {
  const std::pair<uint64_t, const char*> sizes[] = {
      {0, "0"},           {1, "1"},
      {1023, "1023"},     {1024, "1K"},
      {1536, "1536"},     {512 << 10, "512K"},
      {16 << 20, "16M"},  {1ull << 30, "1G"},
      {3ull << 40, "3T"}, {UINT64_MAX, "18446744073709551615"},
  };
  for (auto& [value, text] : sizes) {
    EXPECT_EQ(format_size(value), text);
    uint64_t back = 0;
    EXPECT_TRUE(parse_size(text, &back).ok());
    EXPECT_EQ(back, value);
  }
  const std::pair<Nanos, const char*> times[] = {
      {0, "0"},
      {1, "1ns"},
      {50 * kMicro, "50us"},
      {1500 * kMicro, "1500us"},
      {5 * kMilli, "5ms"},
      {30 * kSecond, "30s"},
      {60 * kSecond, "1m"},
      {3600 * kSecond, "1h"},
      {INT64_MAX, "9223372036854775807ns"},
  };
  for (auto& [value, text] : times) {
    EXPECT_EQ(format_time(value), text);
    Nanos back = -1;
    EXPECT_TRUE(parse_time(text, &back).ok());
    EXPECT_EQ(back, value);
  }
}

}  // namespace
}  // namespace tcpx
