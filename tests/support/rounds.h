// Tests that interrupt a transfer midway, whatever the machine is busy with.
#pragma once

#include <gtest/gtest.h>

namespace tcpx::test {

// How often a test tries to meet a transfer under way.
inline constexpr int kAttempts = 20;

// Calls round(&met) until it says that its transfers were under way when they were interrupted. On
// a busy machine they may be over before; such a round has shown nothing.
template <class Round>
void until_under_way(Round&& round) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    bool met = false;
    round(&met);
    if (met || ::testing::Test::HasFailure()) return;
  }
  FAIL() << "not one of " << kAttempts << " transfers was still under way";
}

}  // namespace tcpx::test
