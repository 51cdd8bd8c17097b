// What a poll of a transfer does where cores are scarce.
#include <gtest/gtest.h>

#include <thread>

#include "core_pair.h"

namespace tcpx {
namespace {

constexpr size_t kBytes = 64 << 20;

struct Polling : testing::Test {
  CorePair pair{kBytes, nullptr, nullptr, "512K", "1"};

  Polling() {
    for (auto* engine : {pair.source.get(), pair.target.get()}) engine->shared().max_spinning = 0;
  }
  // In progress, with all of it still to go and the rate of the lane known: polls stay.
  std::shared_ptr<TransferState> long_transfer() {
    auto transfer = pair.prepare(TCPX_WRITE);
    EXPECT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
    for (int round = 0; round < 50 && lane_of(*transfer).rate() == 0; ++round) run(transfer);
    EXPECT_GT(lane_of(*transfer).rate(), 0);
    return transfer;
  }
  void run(const std::shared_ptr<TransferState>& transfer) {
    pair.post(transfer);
    transfer->peer->transfers().wait(*transfer, now_ns() + 20 * kSecond);
    EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
  }
  static PeerLane& lane_of(const TransferState& transfer) {
    return **transfer.peer->lanes().begin();
  }
};

// Somebody else has the loop: whoever makes the progress needs the core more.
TEST_F(Polling, WhoCannotHaveTheLoopSleeps) {
  auto transfer = long_transfer();
  Nanos time = 0;
  int64_t polls = 0;
  lane_of(*transfer).loop().run_exclusive([&] {
    std::thread([&] {
      pair.post(transfer);
      Nanos from = now_ns();
      for (; now_ns() - from < 50 * kMilli; ++polls) transfer->peer->transfers().poll(*transfer);
      time = now_ns() - from;
    }).join();
    EXPECT_TRUE(transfer->in_progress());
  });
  EXPECT_GE(polls, 2) << "a poll is no wait";
  EXPECT_LT(polls, time / (20 * kMicro)) << "they sleep for 200 us, but where the end would be due";
  transfer->peer->transfers().wait(*transfer, now_ns() + 20 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
}

TEST_F(Polling, PolledToItsEnd) {
  auto transfer = long_transfer();
  for (int round = 0; round < 5; ++round) {
    pair.post(transfer);
    Nanos give_up = now_ns() + 20 * kSecond;
    while (transfer->in_progress() && now_ns() < give_up)
      transfer->peer->transfers().poll(*transfer);
    ASSERT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
  }
}

}  // namespace
}  // namespace tcpx
