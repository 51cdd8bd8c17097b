// Shared by the tests of src/wire and src/session/auth.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace tcpx::test {

// Random per run so that the tests see new cases; TCPX_TEST_SEED repeats a run.
inline uint64_t test_seed() {
  const char* fixed = std::getenv("TCPX_TEST_SEED");
  const uint64_t seed =
      fixed != nullptr ? std::strtoull(fixed, nullptr, 0) : std::random_device{}();
  std::cout << "TCPX_TEST_SEED=" << seed << std::endl;
  return seed;
}

inline std::vector<uint8_t> unhex(std::string_view text) {
  std::vector<uint8_t> bytes(text.size() / 2);
  if (!from_hex(text, bytes)) ADD_FAILURE() << "bad hex in the test: " << text;
  return bytes;
}

template <size_t N>
std::array<uint8_t, N> counting_from(uint8_t first) {
  std::array<uint8_t, N> bytes;
  for (size_t i = 0; i < N; ++i) bytes[i] = static_cast<uint8_t>(first + i);
  return bytes;
}

inline testing::AssertionResult fails_with(const Status& status, tcpx_code code,
                                           std::string_view text) {
  if (status.code() == code && status.text().find(text) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "got \"" << status.to_string() << "\", wanted code "
                                     << code_name(code) << " and text with \"" << text << '"';
}

}  // namespace tcpx::test
