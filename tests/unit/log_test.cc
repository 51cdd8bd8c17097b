#include "base/log.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

TEST(Escaped, LeavesPlainTextAlone) {
  EXPECT_EQ(escaped("host-1:42 /a_b~"), "host-1:42 /a_b~");
}

TEST(Escaped, MakesHostileBytesVisible) {
  using namespace std::string_view_literals;
  const std::pair<std::string_view, const char*> cases[] = {
      {""sv, ""},
      {"a\nb\r\t"sv, R"(a\nb\r\t)"},
      {"\0x"sv, R"(\x00x)"},
      {"\x1b[31mred"sv, R"(\x1b[31mred)"},
      {"\x7f\x80\xff"sv, R"(\x7f\x80\xff)"},
      {R"(say "hi" it's \ ok)"sv, R"(say \"hi\" it\'s \\ ok)"},
  };
  for (auto& [in, out] : cases) EXPECT_EQ(escaped(in), out);
}

struct Lines {
  std::string text;
  static void add(void* user, tcpx_log_level level, const char* line) {
    static_cast<Lines*>(user)->text += std::to_string(level) + line + ";";
  }
};

TEST(Log, LevelDecidesWhatReachesTheCallback) {
  Lines lines;
  Log log(&Lines::add, &lines, TCPX_LOG_INFO);
  log.error("e{}", 1);
  log.warn("w");
  log.info("i");
  log.debug("d");
  log.trace("t");
  EXPECT_EQ(lines.text, "0e1;1w;2i;");
}

TEST(Log, WithoutCallbackNothingHappens) {
  Log log;
  EXPECT_FALSE(log.enabled(TCPX_LOG_ERROR));
  log.error("nobody listens");
}

}  // namespace
}  // namespace tcpx
