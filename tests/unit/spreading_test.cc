// Which lanes carry a transfer: all of them, or one where the others' loops sleep and a part is not
// worth waking them for; and how much of it a lane may hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "core_pair.h"

namespace tcpx {
namespace {

struct Spreading : testing::Test {
  // Loops sleep as soon as they have nothing to do.
  static void let_nobody_spin(CorePair& pair) {
    for (auto* engine : {pair.source.get(), pair.target.get()})
      engine->shared().drivers.spin_up_to(0);
  }
  static uint32_t lanes_used(const TransferState& transfer) {
    return static_cast<uint32_t>(std::count_if(transfer.shares.begin(), transfer.shares.end(),
                                               [](const LaneShare& s) { return s.chunks > 0; }));
  }
  // Moves everything once and returns on how many lanes. `meanwhile` runs after the post.
  static uint32_t run(
      CorePair& pair, tcpx_op op, const std::function<void()>& meanwhile = [] {}) {
    for (size_t i = 0; i < pair.local.size(); ++i) {
      pair.local[i] = static_cast<uint8_t>(i * 151 >> 6);
      pair.remote[i] = static_cast<uint8_t>(i * 157 >> 6);
    }
    std::vector<uint8_t> expected = op == TCPX_WRITE ? pair.local : pair.remote;
    auto transfer = pair.prepare(op);
    EXPECT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
    EXPECT_GT(transfer->plan.chunks.size(), 1u);
    pair.post(transfer);
    meanwhile();
    transfer->peer->transfers().wait(*transfer, now_ns() + 10 * kSecond);
    EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
    EXPECT_EQ(pair.local, expected);
    EXPECT_EQ(pair.remote, expected);
    return lanes_used(*transfer);
  }
};

// Mostly: a loop may be awake for something else.
TEST_F(Spreading, WhatIsNotWorthWakingALoopForStaysOnOneLane) {
  CorePair pair(2 * (tuning::kWorthWaking - 4096), nullptr, nullptr, "512K");
  let_nobody_spin(pair);
  int on_one = 0;
  for (int round = 0; round < 20; ++round)
    on_one += run(pair, round % 2 == 0 ? TCPX_WRITE : TCPX_READ) == 1;
  EXPECT_GT(on_one, 10);
}

TEST_F(Spreading, WhatIsWorthItWakesThem) {
  CorePair pair(2 * tuning::kWorthWaking, nullptr, nullptr, "512K");
  let_nobody_spin(pair);
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(run(pair, TCPX_WRITE), 2u);
    EXPECT_EQ(run(pair, TCPX_READ), 2u);
  }
}

// They are told by a flag that they look at anyway.
TEST_F(Spreading, LoopsThatAreAwakeShareEvenWhatIsShort) {
  CorePair pair(128 << 10, nullptr, nullptr, "512K");
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    auto transfer = pair.prepare(op);
    ASSERT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
    Loop& second = (*std::next(transfer->peer->lanes().begin()))->loop();
    ASSERT_NE(&second, &(*transfer->peer->lanes().begin())->loop());
    std::atomic<bool> inside{false}, posted{false};
    std::thread awake([&] {
      second.run_exclusive([&] {
        inside = true;
        while (!posted) std::this_thread::yield();
      });
    });
    while (!inside) std::this_thread::yield();
    EXPECT_EQ(run(pair, op, [&] { posted = true; }), 2u);
    posted = true;
    awake.join();
  }
}

// A READ is asked for with a few bytes, so a lane could ask for its whole window at once.
TEST_F(Spreading, NoLaneHoldsMoreThanHalfItsShareOfWhatIsLeft) {
  CorePair pair(2 << 20);
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
