// Chunks of a WRITE that has ended here and may still land at the peer. A cancel is a fence for
// them too, whatever ended the transfer, and nothing is posted over them.
#include "raw_lanes.h"

namespace tcpx::test {
namespace {

using wire::FrameType;

constexpr Ms kBriefly = patience(60);

// The engine writes to a peer that the test speaks for, who answers when it likes.
class LooseChunk : public RawLanes {
 protected:
  static constexpr uint64_t kBytes = 1'000;

  void SetUp() override {
    lanes[1] = start_with_two_lanes(
        {{"peer_timeout", time_option(20'000)}, {"lane_timeout", time_option(20'000)}});
    lanes[0] = std::move(first);
    for (auto& lane : lanes) ASSERT_TRUE(lane->ping()) << "the engine has both";
    ASSERT_TRUE(succeeded(engine.accept(&peer, kLong)));
    local = make_local(engine, kBytes, 0, 1);
    first = std::make_unique<RawClient>(target);  // region() asks it for the peer's name
    first->hello = lanes[0]->hello;
    remote = region(kBytes);
    ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, kBytes}},
                                         {{&remote, 0, kBytes}}, &transfer)));
  }
  void TearDown() override {
    transfer.release();
    engine.destroy();
  }
  // A frame as one of the lanes brings it.
  void receive(FrameType type, Frame* out) {
    ASSERT_TRUE(eventually(
        [&] {
          for (uint32_t i = 0; i < 2; ++i) {
            auto frame = lanes[i] ? lanes[i]->receive_type(type, Ms{20}) : std::nullopt;
            if (!frame) continue;
            *out = *frame;
            carrier = i;
            return true;
          }
          return false;
        },
        patience(3'000)));
  }
  void post_and_miss_the_deadline(Frame* chunk) {
    ASSERT_TRUE(succeeded(transfer.post(kBriefly)));
    receive(FrameType::kWrite, chunk);
    ASSERT_EQ(transfer.wait(kLong).code(), TCPX_DEADLINE);
  }
  bool answer(const Frame& frame, tcpx_code code = TCPX_OK) {
    wire::Header ack = frame_of(FrameType::kAck, frame.header.transfer);
    ack.chunk = frame.header.chunk;
    ack.status = static_cast<uint16_t>(code);
    return lanes[carrier]->send(ack);
  }
  void expect_still_out() {
    for (int times = 0; times < 2; ++times)
      EXPECT_EQ(transfer.cancel(kBriefly).code(), TCPX_DEADLINE) << "a chunk may still land";
    Result posted = transfer.post();
    EXPECT_EQ(posted.code(), TCPX_BUSY);
    EXPECT_NE(posted.text().find("tcpx_cancel"), std::string::npos) << posted.text();
  }
  void expect_works_again() {
    EXPECT_TRUE(succeeded(transfer.cancel(kLong)));
    ASSERT_TRUE(succeeded(transfer.post()));
    Frame chunk;
    receive(FrameType::kWrite, &chunk);
    ASSERT_TRUE(answer(chunk));
    EXPECT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  }

  std::unique_ptr<RawClient> lanes[2];
  uint32_t carrier = 0;  // lane of the frame received last
  tcpx_peer peer = 0;
  Local local;
  tcpx_remote_region remote{};
  Transfer transfer;
};

TEST_F(LooseChunk, AfterADeadlineTheCancelWaitsForItsAnswer) {
  Frame chunk;
  post_and_miss_the_deadline(&chunk);
  expect_still_out();
  ASSERT_TRUE(answer(chunk));
  expect_works_again();
}

TEST_F(LooseChunk, ASecondCancelWaitsAsTheFirstDid) {
  ASSERT_TRUE(succeeded(transfer.post()));
  Frame chunk;
  receive(FrameType::kWrite, &chunk);
  EXPECT_EQ(transfer.cancel(kBriefly).code(), TCPX_DEADLINE);
  EXPECT_EQ(transfer.poll().code(), TCPX_CANCELLED);
  expect_still_out();
  ASSERT_TRUE(answer(chunk, TCPX_CANCELLED));
  expect_works_again();
}

TEST_F(LooseChunk, SoDoesOneAfterTheSourceWasDeregistered) {
  ASSERT_TRUE(succeeded(transfer.post()));
  Frame chunk;
  receive(FrameType::kWrite, &chunk);
  ASSERT_TRUE(succeeded(engine.deregister(local.region)));
  EXPECT_EQ(transfer.poll().code(), TCPX_REGION_REVOKED);
  EXPECT_EQ(transfer.cancel(kBriefly).code(), TCPX_DEADLINE) << "a chunk may still land";
  ASSERT_TRUE(answer(chunk));
  EXPECT_TRUE(succeeded(transfer.cancel(kLong)));
}

TEST_F(LooseChunk, ACancelThatWaitsIsWokenByTheAnswer) {
  Frame chunk;
  post_and_miss_the_deadline(&chunk);
  std::thread peer_answers([&] {
    std::this_thread::sleep_for(Ms{50});
    EXPECT_TRUE(answer(chunk));
  });
  EXPECT_TRUE(succeeded(transfer.cancel(kLong)));
  peer_answers.join();
}

TEST_F(LooseChunk, OneOnALostLaneIsOutUntilThePeerHasClosedItsEnd) {
  Frame chunk, asked;
  post_and_miss_the_deadline(&chunk);
  uint32_t lost = carrier;
  lanes[lost].reset();
  receive(FrameType::kLaneDown, &asked);
  ASSERT_EQ(asked.header.chunk, lost);
  expect_still_out();
  wire::Header down = frame_of(FrameType::kLaneDownAck);
  down.chunk = lost;
  ASSERT_TRUE(lanes[1 - lost]->send(down));
  expect_works_again();
}

// In limbo when the deadline comes, not at a lane.
TEST_F(LooseChunk, SoIsOneWhoseLaneWasLostBeforeTheDeadline) {
  ASSERT_TRUE(succeeded(transfer.post(patience(300))));
  Frame chunk, asked;
  receive(FrameType::kWrite, &chunk);
  uint32_t lost = carrier;
  lanes[lost].reset();
  receive(FrameType::kLaneDown, &asked);
  ASSERT_EQ(transfer.wait(kLong).code(), TCPX_DEADLINE);
  expect_still_out();
  wire::Header down = frame_of(FrameType::kLaneDownAck);
  down.chunk = lost;
  ASSERT_TRUE(lanes[1 - lost]->send(down));
  expect_works_again();
}

TEST_F(LooseChunk, NobodyKnowsAfterTheSession) {
  Frame chunk;
  post_and_miss_the_deadline(&chunk);
  lanes[0].reset();
  lanes[1].reset();
  ASSERT_TRUE(eventually([&] {
    tcpx_peer_info info{};
    return engine.peer_info(peer, &info) && info.state != TCPX_OK;
  }));
  tcpx_code code = transfer.cancel(kLong).code();
  EXPECT_EQ(code, TCPX_PEER_DISCONNECTED) << tcpx_code_name(code);
  EXPECT_EQ(transfer.post().code(), TCPX_PEER_DISCONNECTED);
}

TEST_F(LooseChunk, TheSessionsEndLeavesItUnknownToo) {
  ASSERT_TRUE(succeeded(transfer.post()));
  Frame chunk;
  receive(FrameType::kWrite, &chunk);
  lanes[0].reset();
  lanes[1].reset();
  ASSERT_EQ(transfer.wait(kLong).code(), TCPX_PEER_DISCONNECTED);
  EXPECT_EQ(transfer.cancel(kLong).code(), TCPX_PEER_DISCONNECTED);
}

TEST_F(LooseChunk, WhatWasAnsweredStaysKnownAfterTheSession) {
  ASSERT_TRUE(succeeded(transfer.post()));
  Frame chunk;
  receive(FrameType::kWrite, &chunk);
  ASSERT_TRUE(answer(chunk, TCPX_STALE_REGION));
  ASSERT_EQ(transfer.wait(kLong).code(), TCPX_STALE_REGION);
  lanes[0].reset();
  lanes[1].reset();
  EXPECT_TRUE(succeeded(transfer.cancel(kLong)));
}

// Its notification follows the chunk, and is answered later.
TEST_F(LooseChunk, ANotificationBehindTheDataIsWaitedForToo) {
  ASSERT_TRUE(succeeded(transfer.post_notify("n", kBriefly)));
  Frame chunk;
  receive(FrameType::kWrite, &chunk);
  auto notice = lanes[carrier]->receive();
  ASSERT_TRUE(notice && notice->header.type == FrameType::kNotifyBehind);
  ASSERT_EQ(transfer.wait(kLong).code(), TCPX_DEADLINE);
  ASSERT_TRUE(answer(chunk));
  ASSERT_TRUE(lanes[carrier]->ping());
  expect_still_out();
  ASSERT_TRUE(lanes[carrier]->send(frame_of(FrameType::kNotifyBehindAck, notice->header.transfer)));
  expect_works_again();
}

// A READ leaves nothing at the peer that could land here.
TEST_F(LooseChunk, AReadHasNone) {
  Transfer read;
  ASSERT_TRUE(succeeded(
      engine.prepare(peer, TCPX_READ, {{local.region, 0, kBytes}}, {{&remote, 0, kBytes}}, &read)));
  ASSERT_TRUE(succeeded(read.post(kBriefly)));
  Frame asked;
  receive(FrameType::kRead, &asked);
  ASSERT_EQ(read.wait(kLong).code(), TCPX_DEADLINE);
  EXPECT_TRUE(succeeded(read.cancel(kBriefly)));
  EXPECT_TRUE(succeeded(read.post(kBriefly)));
}

// ---- a real peer, stopped with what it has received but not placed ----------------------------

class LooseChunkStopped : public Fault {
 protected:
  static constexpr uint64_t kRoom = 16 << 20;
  static Options patient() {
    return fault_options({{"peer_timeout", time_option(30'000)},
                          {"lane_timeout", time_option(20'000)},
                          {"lanes", "2"}});
  }
  void SetUp() override { start(patient()); }
};

TEST_F(LooseChunkStopped, NothingLandsAfterTheCancelSaysSo) {
  Peer victim;
  victim.create(patient());
  tcpx_remote_region remote = victim.memory("m", kRoom, kReadWrite, 1);
  tcpx_peer peer = connect(victim.info());
  Local local = make_local(engine, kRoom, 0, 2);
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, kRoom}},
                                       {{&remote, 0, kRoom}}, &transfer)));
  victim.freeze();
  ASSERT_TRUE(succeeded(transfer.post(patience(200))));
  ASSERT_EQ(transfer.wait(kLong).code(), TCPX_DEADLINE);
  EXPECT_EQ(transfer.cancel(kBriefly).code(), TCPX_DEADLINE) << "the peer has yet to place it";
  EXPECT_EQ(transfer.post().code(), TCPX_BUSY);
  victim.thaw();
  ASSERT_TRUE(succeeded(transfer.cancel(kLong)));
  Reply reply = victim.call("sentinel m 5 100");
  EXPECT_TRUE(reply.ok()) << reply.text;
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  EXPECT_EQ(victim.check("m", 0, kRoom, 2, 0, 0), "");
  transfer.release();
  EXPECT_TRUE(succeeded(engine.deregister(local.region)));
}

}  // namespace
}  // namespace tcpx::test
