// Part of every test program. At exit the leak checker stops all threads one by one, and does not
// bear one that is just ending: it crashed in 1 of 20,000 runs (the emulator's detached set-up
// threads), and hung in 1 of 50 of the test peer (threads that had been joined, but were not gone).
#if defined(__SANITIZE_ADDRESS__)
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace {

struct QuietEnd : testing::Environment {
  void TearDown() override { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
};
[[maybe_unused]] testing::Environment* const quiet_end =
    testing::AddGlobalTestEnvironment(new QuietEnd);

}  // namespace
#endif
