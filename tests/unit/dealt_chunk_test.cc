// post() deals every idle lane its first chunk. A lane that has not come for it yet must not keep
// it: not when the lane is lost, not when the transfer is cancelled, not when the session ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "core_pair.h"

namespace tcpx {
namespace {

constexpr size_t kBytes = 128 << 10;  // a chunk for each of the two lanes
constexpr uint8_t kPoison = 0xAA;

void pause_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

// Keeps the loop of a lane from doing anything. From outside, not as one of its commands: then what
// is asked of it meanwhile runs before the wakes.
class HeldLoop {
 public:
  explicit HeldLoop(PeerLane& lane)
      : thread_([this, &lane] {
          auto hold = [this] {
            entered_ = true;
            while (!released_) pause_ms(1);
          };
          while (!lane.loop().try_exclusive(hold)) pause_ms(1);
        }) {
    while (!entered_) pause_ms(1);
  }
  ~HeldLoop() {
    release();
    thread_.join();
  }
  void release() { released_ = true; }

 private:
  std::atomic<bool> entered_{false}, released_{false};
  std::thread thread_;
};

struct DealtChunk : testing::Test {
  CorePair pair{kBytes};
  std::shared_ptr<TransferState> transfer;
  PeerLane* second = nullptr;

  // Posts a WRITE whose second chunk lies with a lane that cannot come for it.
  std::unique_ptr<HeldLoop> post_with_second_lane_held() {
    for (size_t i = 0; i < kBytes; ++i) pair.local[i] = static_cast<uint8_t>(i * 131 >> 7 | 1);
    std::fill(pair.remote.begin(), pair.remote.end(), kPoison);
    transfer = pair.prepare(TCPX_WRITE);
    EXPECT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
    LaneList lanes = transfer->peer->lanes();
    if (lanes.size() != 2) throw std::runtime_error("two lanes are needed");
    second = lanes.begin()[1];
    EXPECT_NE(&second->loop(), &lanes.begin()[0]->loop()) << "the lanes need a loop each";
    auto held = std::make_unique<HeldLoop>(*second);
    pair.post(transfer);
    EXPECT_FALSE(second->idle()) << "the lane was not dealt a chunk";
    EXPECT_EQ(second->in_flight(), 0u) << "the lane has come for its chunk";
    transfer->peer->transfers().wait(*transfer, now_ns() + 100 * kMilli);
    EXPECT_TRUE(transfer->in_progress());
    return held;
  }
  bool second_half_untouched() const {
    return std::all_of(pair.remote.begin() + kBytes / 2, pair.remote.end(),
                       [](uint8_t byte) { return byte == kPoison; });
  }
};

TEST_F(DealtChunk, IsSentWhenTheLaneComesForIt) {
  auto held = post_with_second_lane_held();
  EXPECT_TRUE(second_half_untouched());
  held->release();
  transfer->peer->transfers().wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
  EXPECT_EQ(pair.remote, pair.local);
  EXPECT_EQ(transfer->retries, 0u);
}

TEST_F(DealtChunk, OfALaneThatIsLostGoesByAnother) {
  auto held = post_with_second_lane_held();
  auto shut = second->ask_shut(lane_error(TCPX_PEER_DISCONNECTED, "cut by the test"),
                               transfer->peer->lanes().kept());
  held->release();
  EXPECT_TRUE(second->loop().wait_for(shut, kNever));
  transfer->peer->transfers().wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
  EXPECT_EQ(pair.remote, pair.local);
  EXPECT_EQ(transfer->retries, 0u) << "it had left";
  EXPECT_EQ(transfer->lanes_lost, 1u);
  EXPECT_EQ(transfer->shares[0].chunks, 2u);
  EXPECT_EQ(transfer->shares[1].chunks, 0u);
}

TEST_F(DealtChunk, OfACancelledTransferIsNeverSent) {
  auto held = post_with_second_lane_held();
  std::thread later([&] {
    pause_ms(100);
    held->release();
  });
  Status status = transfer->peer->transfers().cancel(transfer, now_ns() + 10 * kSecond);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(transfer->code.load(), TCPX_CANCELLED);
  EXPECT_TRUE(second->idle());
  later.join();
  std::fill(pair.local.begin(), pair.local.end(), 0x55);
  pause_ms(50);
  EXPECT_TRUE(second_half_untouched());
  pair.post(transfer);  // and the lane is as good as before
  transfer->peer->transfers().wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
  EXPECT_EQ(pair.remote, pair.local);
}

// A fence that is still on its way round the lanes belongs to the post before.
TEST_F(DealtChunk, OfTheNextPostIsNotTakenByAFenceOfTheLastOne) {
  auto held = post_with_second_lane_held();
  uint64_t before = transfer->id - 1;
  auto taken = std::make_shared<size_t>(0);
  auto asked =
      second->loop().ask([this, taken, before] { *taken = second->stop(*transfer, before); });
  held->release();
  EXPECT_TRUE(second->loop().wait_for(asked, kNever));
  transfer->peer->transfers().wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
  EXPECT_EQ(pair.remote, pair.local);
}

// A lane that serves the peer's reads has no credit; what was dealt to it leaves all the same.
TEST_F(DealtChunk, OfALaneWithoutCreditLeaves) {
  auto held = post_with_second_lane_held();
  EXPECT_FALSE(second->idle());
  std::vector<std::unique_ptr<TxFrame>> served;  // never handed out by the lane's own pool
  auto asked = second->loop().ask([&] {
    while (second->lane().payload_credit() > 0) {
      served.push_back(std::make_unique<TxFrame>());
      served.back()->header.type = wire::FrameType::kNotify;
      served.back()->header.payload_bytes = 1;
      served.back()->payload = {{pair.local.data(), 1}};
      second->lane().queue(served.back().get());
    }
    second->fill();
    EXPECT_EQ(second->in_flight(), 1u) << "it waits for credit";
    for (auto& frame : served) EXPECT_TRUE(second->lane().unqueue(frame.get()));
  });
  held->release();
  EXPECT_TRUE(second->loop().wait_for(asked, kNever));
  transfer->peer->transfers().wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
  EXPECT_EQ(pair.remote, pair.local);
}

TEST_F(DealtChunk, OfASessionThatEndsIsDropped) {
  auto held = post_with_second_lane_held();
  std::weak_ptr<TransferState> watched = transfer;
  std::thread later([&] {
    pause_ms(100);
    held->release();
  });
  LaneList lanes = transfer->peer->lanes();  // the peer lets them go when it has ended
  transfer->peer->ending().begin(peer_error(TCPX_PEER_CLOSED, "ended by the test"));
  transfer->peer->ending().await();
  later.join();
  EXPECT_EQ(transfer->code.load(), TCPX_PEER_CLOSED);
  EXPECT_TRUE(second->idle());
  held.reset();
  transfer.reset();
  EXPECT_TRUE(watched.expired()) << "somebody still holds the transfer";
}

}  // namespace
}  // namespace tcpx
