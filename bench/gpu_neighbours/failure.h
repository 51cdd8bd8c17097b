// What fails is an exception, which a scenario's process prints as a row and others as a line of
// stderr.
#pragma once

#include <stdexcept>
#include <string>

#include <tcpx/tcpx.hpp>

namespace tcpx::bench {

[[noreturn]] inline void fail(const std::string& what) {
  throw std::runtime_error(what);
}
inline void check(const Result& result, const char* what) {
  if (!result) fail(std::string(what) + ": " + result.name() + ": " + result.text());
}

}  // namespace tcpx::bench
