// Under ThreadSanitizer a wait that is missing is a race, whatever else was called in between: only
// what orders a GPU's work orders it here.
#include "fixture.h"

#ifdef __SANITIZE_THREAD__

namespace tcpx::test {
namespace {

struct Races : FakeDriver {
  static constexpr size_t kSize = 4096;
  static constexpr int kRace = 66;  // ThreadSanitizer's exit status
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    FakeDriver::SetUp();
    if (IsSkipped()) return;
  }

  // Copies out of device memory, and looks when `wait` says that it may.
  static void copy_and_look(auto wait) {
    const uint64_t device = device_memory(kSize);
    uint8_t *host = pinned(kSize), *words = pinned(64);
    Stream stream = make_stream();
    if (out_of_device(host, device, kSize, stream) != 0) std::abort();
    if (write_value(stream, words, 1) != 0) std::abort();
    wait(stream, words);
    std::exit(host[100] == 1 ? 1 : 0);
  }
};

TEST_F(Races, WhoWaitsForTheValueHasNone) {
  EXPECT_EXIT(copy_and_look([](Stream, uint8_t* words) { comes(words, 1); }),
              testing::ExitedWithCode(0), "");
}
TEST_F(Races, WhoAsksTheStreamHasNone) {
  EXPECT_EXIT(copy_and_look([](Stream stream, uint8_t*) {
                while (cu("cuStreamQuery", stream) == kNotReady) {
                }
              }),
              testing::ExitedWithCode(0), "");
}
TEST_F(Races, TimeIsNoOrder) {
  EXPECT_EXIT(copy_and_look([](Stream, uint8_t*) { ::usleep(50'000); }),
              testing::ExitedWithCode(kRace), "data race");
}
TEST_F(Races, AnotherStreamIsNoOrder) {
  // Allocating would order: it waits for those who look at memory.
  EXPECT_EXIT(copy_and_look([](Stream, uint8_t* words) {
                ::usleep(50'000);
                Stream other = make_stream();
                write_value(other, words + 32, 1);
                comes(words + 32, 1);
                while (cu("cuStreamQuery", other) == kNotReady) {
                }
              }),
              testing::ExitedWithCode(kRace), "data race");
}
TEST_F(Races, ARelaxedLookIsNoOrder) {
  EXPECT_EXIT(copy_and_look([](Stream, uint8_t* words) {
                std::atomic_ref word(*reinterpret_cast<uint32_t*>(words));
                while (word.load(std::memory_order_relaxed) == 0) {
                }
              }),
              testing::ExitedWithCode(kRace), "data race");
}
TEST_F(Races, AStreamThatIsNotReadyIsNoOrder) {
  EXPECT_EXIT(copy_and_look([](Stream stream, uint8_t* words) {
                cu("cuStreamWaitValue32_v2", stream, reinterpret_cast<uint64_t>(words + 32), 5, 0);
                ::usleep(50'000);
                if (cu("cuStreamQuery", stream) != kNotReady) std::abort();
              }),
              testing::ExitedWithCode(kRace), "data race");
}
TEST_F(Races, MemoryThatIsUsedAgainTooEarly) {
  EXPECT_EXIT(
      {
        uint8_t* host = pinned(kSize);
        into_device(device_memory(kSize), host, kSize, make_stream());
        ::usleep(50'000);
        host[5] = 1;
        std::exit(0);
      },
      testing::ExitedWithCode(kRace), "data race");
}

}  // namespace
}  // namespace tcpx::test

#endif
