// How many chunks a lane may hold.
#include "engine/chunk_window.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

using Pace = ChunkWindow::Pace;
using State = ChunkOut::State;
constexpr uint64_t kChunk = 512 << 10;

ChunkOut& take(ChunkWindow& window, uint32_t chunk, Nanos now = 0, uint64_t bytes = kChunk) {
  return window.take({std::make_shared<TransferState>(), 7, chunk}, bytes, false, State::kQueued,
                     now);
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
