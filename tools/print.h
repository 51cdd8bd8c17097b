// print(stdout, "{} of {}\n", a, b)
#pragma once

#include <cstdio>

#include "base/text.h"

namespace tcpx::tool {

template <class... Args>
void print(FILE* to, fmt::format_string<Args...> format, const Args&... args) {
  std::string text = strf(format, args...);
  std::fwrite(text.data(), 1, text.size(), to);
}

}  // namespace tcpx::tool
