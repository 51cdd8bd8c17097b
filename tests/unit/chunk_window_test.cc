// How many chunks a lane may hold.
#include "engine/chunk_window.h"

#include <gtest/gtest.h>

#include <array>

namespace tcpx {
namespace {

using Pace = ChunkWindow::Pace;
using State = ChunkOut::State;
constexpr uint64_t kChunk = 512 << 10;

const Place kHost, kGpu0{Place::Kind::kCuda, 0}, kGpu1{Place::Kind::kCuda, 1},
    kGpu2{Place::Kind::kCuda, 2};

ChunkOut& take(ChunkWindow& window, uint32_t chunk, Nanos now = 0, uint64_t bytes = kChunk,
               Place here = {}, Place there = {}) {
  auto transfer = std::make_shared<TransferState>();
  transfer->plan.chunks.resize(chunk + 1, {0, 1, 0, bytes, here, there});
  return window.take({std::move(transfer), 7, chunk}, bytes, false, State::kQueued, now);
}

// As many of these as it takes.
uint32_t take_all(ChunkWindow& window, uint32_t first, Place here, Place there) {
  Plan plan;
  plan.chunks.push_back({0, 1, 0, kChunk, here, there});
  uint32_t taken = 0;
  while (window.has_place() && !plan.is_of(0, window.no_more()))
    take(window, first + taken++, 0, kChunk, here, there);
  return taken;
}

// Out and answered.
void answer(ChunkWindow& window, uint32_t chunk, Nanos now) {
  ChunkOut* entry = window.find(7, chunk);
  ASSERT_NE(entry, nullptr);
  entry->state.step(State::kOut);
  EXPECT_EQ(window.settle(*entry, true, now).chunk, chunk);
}

TEST(ChunkWindow, HoldsAtMostAWindow) {
  ChunkWindow window(6, Pace::kWhole, kChunk);
  for (uint32_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(window.may_hold_more());
    take(window, i);
  }
  EXPECT_FALSE(window.may_hold_more());
  answer(window, 3, 1);
  EXPECT_TRUE(window.may_hold_more());
  EXPECT_EQ(window.find(7, 3), nullptr);
  EXPECT_EQ(window.used(), 5u);
}

TEST(ChunkWindow, PacedIsOneByOne) {
  ChunkWindow window(16, Pace::kOneByOne, kChunk);
  take(window, 0);
  EXPECT_FALSE(window.may_hold_more());
  answer(window, 0, 1);
  EXPECT_TRUE(window.may_hold_more());
}

TEST(ChunkWindow, AFewBeforeARateIsKnown) {
  ChunkWindow window(64, Pace::kAdaptive, kChunk);
  uint32_t held = 0;
  for (; window.may_hold_more(); ++held) take(window, held);
  EXPECT_EQ(held, 4u);
}

// What a slow lane holds is what everybody waits for at the end.
TEST(ChunkWindow, HoldsTwentyMillisecondsWorthAtTheRateItHasShown) {
  ChunkWindow slow(64, Pace::kAdaptive, kChunk), fast(64, Pace::kAdaptive, kChunk);
  take(slow, 0, 0);
  answer(slow, 0, 10 * kMilli);  // 52 MB/s: 1 MB in 20 ms
  EXPECT_NEAR(slow.rate(), 0.0524, 0.001);
  take(fast, 0, 0);
  answer(fast, 0, 100 * kMicro);  // 5.2 GB/s: 105 MB in 20 ms
  uint32_t held_slow = 0, held_fast = 0;
  for (; slow.may_hold_more(); ++held_slow) take(slow, held_slow);
  for (; fast.may_hold_more(); ++held_fast) take(fast, held_fast);
  EXPECT_EQ(held_slow, 2u);
  EXPECT_EQ(held_fast, 64u);
}

TEST(ChunkWindow, WhatIsTooSmallTellsNoRate) {
  ChunkWindow window(64, Pace::kAdaptive, kChunk);
  take(window, 0, 0, 4096);
  answer(window, 0, 2 * kMilli);
  EXPECT_EQ(window.rate(), 0);
}

TEST(ChunkWindow, KnowsTheOldest) {
  ChunkWindow window(8, Pace::kWhole, kChunk);
  EXPECT_EQ(window.oldest(), nullptr);
  take(window, 0, 100);
  take(window, 1, 50);
  take(window, 2, 70);
  EXPECT_EQ(window.oldest()->chunk, 1u);
}

TEST(ChunkWindow, OfALaneThatEndsAllAreGivenUp) {
  ChunkWindow window(8, Pace::kWhole, kChunk);
  for (uint32_t i = 0; i < 5; ++i) take(window, i);
  int given_up = 0;
  window.give_up_all([&](ChunkOut&) { ++given_up; });
  EXPECT_EQ(given_up, 5);
  EXPECT_EQ(window.used(), 0u);
  EXPECT_EQ(window.find(7, 2), nullptr);
}

// ---- GPUs, each of which may stand still ----

TEST(ChunkWindow, AGpuHasHalfOfWhatIsLeftAndHostMemoryAlwaysAPlace) {
  for (bool there : {false, true}) {
    ChunkWindow window(16, Pace::kWhole, kChunk);
    auto all_of = [&](Place gpu) {
      return there ? take_all(window, window.used(), kHost, gpu)
                   : take_all(window, window.used(), gpu, kHost);
    };
    EXPECT_EQ(all_of(kGpu0), 8u);
    EXPECT_EQ(all_of(kGpu1), 4u);
    EXPECT_EQ(all_of(kGpu2), 2u);
    EXPECT_EQ(all_of(kGpu0), 0u);
    EXPECT_EQ(take_all(window, 100, kHost, kHost), 2u);
    EXPECT_FALSE(window.has_place());
    answer(window, 100, 1);
    EXPECT_EQ(take_all(window, 100, kHost, kHost), 1u);
    answer(window, 0, 1);
    EXPECT_EQ(all_of(kGpu1), 0u) << "the place is host memory's or the first one's";
  }
}

TEST(ChunkWindow, BothEndsOfAChunkCount) {
  ChunkWindow window(16, Pace::kWhole, kChunk);
  EXPECT_EQ(take_all(window, 0, kGpu0, kGpu1), 8u);
  EXPECT_EQ(take_all(window, 20, kGpu0, kHost), 0u);
  EXPECT_EQ(take_all(window, 20, kHost, kGpu1), 0u);
  EXPECT_EQ(take_all(window, 20, kGpu1, kGpu0), 4u) << "others, here and there";
}

// The one that is held there may be all that it would have.
TEST(ChunkWindow, HostMemoryDoesNotKeepGpusOut) {
  ChunkWindow window(8, Pace::kWhole, kChunk);
  EXPECT_EQ(take_all(window, 0, kHost, kHost), 8u);
  answer(window, 3, 1);
  EXPECT_EQ(take_all(window, 50, kGpu0, kHost), 1u);
}

TEST(ChunkWindow, SmallWindowsHaveSmallShares) {
  for (auto [size, of_gpu, of_host] :
       {std::array{1u, 1u, 0u}, {2u, 1u, 1u}, {3u, 1u, 2u}, {4u, 2u, 2u}}) {
    ChunkWindow window(size, Pace::kWhole, kChunk);
    EXPECT_EQ(take_all(window, 0, kGpu0, kHost), of_gpu) << size;
    EXPECT_EQ(take_all(window, 50, kHost, kHost), of_host) << size;
  }
}

// What does not move says nothing of how much the lane can move.
TEST(ChunkWindow, WhatAGpuKeepsCountsAgainstNoOthers) {
  ChunkWindow window(64, Pace::kAdaptive, kChunk);
  EXPECT_EQ(take_all(window, 0, kGpu0, kHost), 4u);
  EXPECT_EQ(take_all(window, 10, kGpu1, kHost), 4u);
  EXPECT_EQ(take_all(window, 20, kHost, kHost), 4u);
}

TEST(ChunkWindow, OfALaneThatEndedNothingCounts) {
  ChunkWindow window(16, Pace::kWhole, kChunk);
  EXPECT_EQ(take_all(window, 0, kGpu0, kGpu1), 8u);
  window.give_up_all([](ChunkOut&) {});
  EXPECT_EQ(take_all(window, 0, kGpu0, kGpu1), 8u);
}

// Before it is out, or while its data is being placed, an answer must not end it.
TEST(ChunkWindow, IllegalStepsAreCaught) {
  ChunkWindow window(8, Pace::kWhole, kChunk);
  ChunkOut& entry = take(window, 0);
  EXPECT_THROW(entry.state.step(State::kPlacing), std::logic_error);
  EXPECT_THROW(entry.state.step(State::kArriving), std::logic_error);
  entry.state.step(State::kOut);
  EXPECT_THROW(entry.state.step(State::kAnswered), std::logic_error);
}

}  // namespace
}  // namespace tcpx
