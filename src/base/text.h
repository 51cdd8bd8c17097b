// strf("{} of {}", a, b): formatted text. fmt does the work, compiled once in text.cc: its
// header-only form costs every file six seconds (g++ 12 -O2 -g), and linking libfmt would be one
// more thing that users of the library need.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

namespace tcpx {

std::string vstrf(std::string_view format, fmt::format_args args);

template <class... Args>
std::string strf(fmt::format_string<Args...> format, const Args&... args) {
  fmt::string_view text = format;
  return vstrf({text.data(), text.size()}, fmt::make_format_args(args...));
}

// "a, b, c" of any range of strings.
template <class Range>
std::string join(const Range& range, std::string_view separator) {
  std::string out;
  for (const auto& part : range) {
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

}  // namespace tcpx
