// What a poll of a transfer does.
#include <gtest/gtest.h>

#include <thread>

#include "core_pair.h"

namespace tcpx {
namespace {

constexpr size_t kBytes = 64 << 20;

struct Polling : testing::Test {
  CorePair pair{kBytes, nullptr, nullptr, "512K", "1"};

  std::shared_ptr<TransferState> long_transfer() {
    auto transfer = pair.prepare(TCPX_WRITE);
    EXPECT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
    return transfer;
  }
  static Loop& loop_of(const TransferState& transfer) {
    return (*transfer.peer->lanes().begin())->loop();
  }
};

// Somebody else has the loop: a poll is no wait, neither for the loop nor for the end.
TEST_F(Polling, WhoCannotHaveTheLoopComesBack) {
  auto transfer = long_transfer();
  loop_of(*transfer).run_exclusive([&] {
    std::thread([&] {
      pair.post(transfer);
      for (int i = 0; i < 1000; ++i) transfer->peer->transfers().poll(*transfer);
    }).join();
    EXPECT_TRUE(transfer->in_progress());
    EXPECT_EQ(transfer->drivers.load(), 0);
  });
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

// Where no loop may spin a poll that comes right back sleeps, and is woken when there is something.
TEST_F(Polling, PolledToItsEndWhereNobodyMaySpin) {
  for (auto* engine : {pair.source.get(), pair.target.get()})
    engine->shared().drivers.spin_up_to(0);
  auto transfer = long_transfer();
  uint64_t before = loop_of(*transfer).sleeps();
  for (int round = 0; round < 5; ++round) {
    pair.post(transfer);
    Nanos give_up = now_ns() + 20 * kSecond;
    while (transfer->in_progress() && now_ns() < give_up)
      transfer->peer->transfers().poll(*transfer);
    ASSERT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
  }
  EXPECT_GT(loop_of(*transfer).sleeps(), before);
}

}  // namespace
}  // namespace tcpx
