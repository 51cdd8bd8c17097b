// Which lanes carry a transfer: all of them, or one where another would have to take its core from
// the first; and how much of it a lane may hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core_pair.h"

namespace tcpx {
namespace {

struct Spreading : testing::Test {
  // More loops at work than may spin, or far fewer, whatever machine this is.
  static void set_crowded(CorePair& pair, bool crowded) {
    for (auto* engine : {pair.source.get(), pair.target.get()})
      engine->shared().max_spinning = crowded ? 0 : 1000;
  }
  static uint32_t lanes_used(const TransferState& transfer) {
    return static_cast<uint32_t>(std::count_if(transfer.shares.begin(), transfer.shares.end(),
                                               [](const LaneShare& s) { return s.chunks > 0; }));
  }
  // Moves everything once and returns on how many lanes.
  static uint32_t run(CorePair& pair, tcpx_op op) {
    for (size_t i = 0; i < pair.local.size(); ++i) {
      pair.local[i] = static_cast<uint8_t>(i * 151 >> 6);
      pair.remote[i] = static_cast<uint8_t>(i * 157 >> 6);
    }
    std::vector<uint8_t> expected = op == TCPX_WRITE ? pair.local : pair.remote;
    auto transfer = pair.prepare(op);
    EXPECT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
    EXPECT_GT(transfer->plan.chunks.size(), 1u);
    pair.post(transfer);
    transfer->peer->transfers().wait(*transfer, now_ns() + 10 * kSecond);
    EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
    EXPECT_EQ(pair.local, expected);
    EXPECT_EQ(pair.remote, expected);
    return lanes_used(*transfer);
  }
};

// Too small to tell a lane's rate, so it would be spread for ever.
TEST_F(Spreading, WhatFitsIntoAChunkStaysOnOneLaneWhereCoresAreScarce) {
  CorePair pair(96 << 10, nullptr, nullptr, "512K");
  set_crowded(pair, true);
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(run(pair, TCPX_WRITE), 1u) << "round " << round;
    EXPECT_EQ(run(pair, TCPX_READ), 1u) << "round " << round;
  }
}

TEST_F(Spreading, LanesThatHaveCoresShareEvenWhatIsShort) {
  CorePair pair(128 << 10, nullptr, nullptr, "512K");
  set_crowded(pair, false);
  EXPECT_EQ(run(pair, TCPX_WRITE), 2u);
  EXPECT_EQ(run(pair, TCPX_READ), 2u);
}

// Spread at first; then on one lane if at the rate that it has shown it takes less than a
// millisecond. What that rate is depends on the machine and its load.
TEST_F(Spreading, TheRateOfTheLaneDecidesAboutAShortTransfer) {
  CorePair pair(1 << 20, nullptr, nullptr, "512K");
  set_crowded(pair, true);
  EXPECT_EQ(run(pair, TCPX_WRITE), 2u) << "nothing is known yet";
  PeerLane* first = *pair.prepare(TCPX_WRITE)->peer->lanes().begin();
  for (int round = 0; round < 20; ++round) {
    double rate = first->rate();  // bytes per ns
    ASSERT_GT(rate, 0);
    bool is_short = static_cast<double>(pair.local.size()) < rate * kMilli;
    EXPECT_EQ(run(pair, TCPX_WRITE), is_short ? 1u : 2u) << "at " << rate << " GB/s";
  }
}

// A READ is asked for with a few bytes, so a lane could ask for its whole window at once.
TEST_F(Spreading, NoLaneHoldsMoreThanHalfItsShareOfWhatIsLeft) {
  CorePair pair(2 << 20);
  set_crowded(pair, false);
  auto transfer = pair.prepare(TCPX_READ);
  ASSERT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
  size_t chunks = transfer->plan.chunks.size();
  ASSERT_GE(chunks, 32u);
  uint32_t most = 0;
  for (int round = 0; round < 20; ++round) {
    pair.post(transfer);
    while (transfer->in_progress()) {
      for (PeerLane* lane : transfer->peer->lanes()) most = std::max(most, lane->in_flight());
      transfer->peer->transfers().wait(*transfer, now_ns() + 20 * kMicro);
    }
    ASSERT_EQ(transfer->code.load(), TCPX_OK);
  }
  EXPECT_LE(most, chunks / 2 / 2);
  EXPECT_GT(most, 2u) << "the lanes were never seen with more than the least";
}

}  // namespace
}  // namespace tcpx
