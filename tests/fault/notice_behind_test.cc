// Notifications directly behind the data of a WRITE: delivered with it or not at all, exactly once,
// and what was delivered is never sent again, whatever lanes are lost on the way.
#include <atomic>
#include <thread>

#include "cut_lanes.h"
#include "raw_lanes.h"

namespace tcpx::test {
namespace {

using wire::FrameType;
using wire::NoticeVerdict;

wire::Header answer_to(const Frame& chunk, tcpx_code code = TCPX_OK) {
  wire::Header answer = frame_of(FrameType::kAck, chunk.header.transfer);
  answer.chunk = chunk.header.chunk;
  answer.status = static_cast<uint16_t>(code);
  return answer;
}
wire::Header answer_to(const Frame& notice, NoticeVerdict verdict) {
  wire::Header answer = frame_of(FrameType::kNotifyBehindAck, notice.header.transfer);
  answer.status = static_cast<uint16_t>(verdict);
  return answer;
}

// The engine writes to a peer that the test speaks for.
class NoticeBehindSent : public RawLanes {
 protected:
  static constexpr uint64_t kBytes = 1'000;

  void SetUp() override {
    lanes[1] = start_with_two_lanes({{"peer_timeout", time_option(20'000)}});
    lanes[0] = std::move(first);
    for (auto& lane : lanes) ASSERT_TRUE(lane->ping()) << "the engine has both";
    ASSERT_TRUE(succeeded(engine.accept(&peer, kLong)));
    local = make_local(engine, 16 * kBytes, 0, 1);
    first = std::make_unique<RawClient>(target);  // region() asks it for the peer's name
    first->hello = lanes[0]->hello;
    remote = region(16 * kBytes);
  }
  void TearDown() override {
    for (Transfer& transfer : transfers) transfer.release();
    engine.destroy();
  }
  void start_anew() {
    TearDown();
    transfers.clear();
    cancelled = false;
    SetUp();
  }
  // Comes back when the cancel has had time to begin.
  std::thread cancel_in_a_thread(Transfer& transfer) {
    std::atomic<bool> begins{false};
    std::thread caller([&] {
      begins = true;
      EXPECT_TRUE(succeeded(transfer.cancel(kLong)));
      cancelled = true;
    });
    EXPECT_TRUE(eventually([&] { return begins.load(); }));
    std::this_thread::sleep_for(patience(50));
    return caller;
  }
  // A WRITE of its own piece. Its chunk and its notification as one of the lanes brings them.
  struct Sent {
    Frame chunk, notice;
    uint32_t lane = 0;
  };
  void post_only(const std::string& notice) {
    uint64_t offset = transfers.size() * kBytes;
    Transfer& transfer = transfers.emplace_back();
    ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, offset, kBytes}},
                                         {{&remote, offset, kBytes}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post_notify(notice)));
  }
  Sent receive() {
    Sent sent;
    bool came = eventually([&] { return receive_on_some_lane(&sent); }, patience(3'000));
    EXPECT_TRUE(came) << "no chunk, or no notification right behind it";
    EXPECT_EQ(sent.notice.header.transfer, sent.chunk.header.transfer);
    return sent;
  }
  Sent post(const std::string& notice) {
    post_only(notice);
    Sent sent = receive();
    EXPECT_EQ(sent.notice.header.chunk, 1u);
    EXPECT_EQ(text(sent.notice), notice);
    return sent;
  }
  static std::string text(const Frame& frame) {
    return {frame.payload.begin(), frame.payload.end()};
  }
  bool receive_on_some_lane(Sent* out) {
    for (uint32_t i = 0; i < 2; ++i) {
      auto chunk = lanes[i] ? lanes[i]->receive(Ms{20}) : std::nullopt;
      if (!chunk || chunk->header.type != FrameType::kWrite) continue;
      auto notice = lanes[i]->receive();
      if (!notice || notice->header.type != FrameType::kNotifyBehind) continue;
      *out = {*chunk, *notice, i};
      return true;
    }
    return false;
  }
  // Loses the lane; the other one is asked about it and answers.
  RawClient& lose(uint32_t lane, uint64_t brought, uint64_t delivered) {
    lanes[lane].reset();
    RawClient& other = *lanes[1 - lane];
    auto asked = other.receive_type(FrameType::kLaneDown);
    EXPECT_TRUE(asked && asked->header.chunk == lane);
    wire::Header answer = frame_of(FrameType::kLaneDownAck, delivered, brought);
    answer.chunk = lane;
    EXPECT_TRUE(other.send(answer));
    return other;
  }
  void expect_done(size_t transfer) {
    EXPECT_TRUE(succeeded(transfers[transfer].wait(patience(3'000))))
        << transfers[transfer].error();
  }
  static void expect_nothing_more(RawClient& lane) {
    auto frame = lane.receive(Ms{100});
    EXPECT_FALSE(frame.has_value()) << "type " << static_cast<int>(frame->header.type);
  }

  std::unique_ptr<RawClient> lanes[2];
  tcpx_peer peer = 0;
  Local local;
  tcpx_remote_region remote{};
  std::vector<Transfer> transfers;
  std::atomic<bool> cancelled{false};
};

TEST_F(NoticeBehindSent, FollowsItsDataWithoutWaitingForAnAnswer) {
  Sent sent = post("n");
  EXPECT_TRUE(transfers[0].poll().in_progress());
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.chunk)));
  ASSERT_TRUE(lanes[sent.lane]->ping());
  EXPECT_TRUE(transfers[0].poll().in_progress()) << "the notification is not confirmed";
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.notice, NoticeVerdict::kDelivered)));
  expect_done(0);
  EXPECT_EQ(counter(engine, "notifications_out"), 1u);
}

TEST_F(NoticeBehindSent, ComesAgainAfterTheDataIfItWasNotDelivered) {
  Sent sent = post("again");
  RawClient& lane = *lanes[sent.lane];
  ASSERT_TRUE(lane.send(answer_to(sent.chunk)));
  ASSERT_TRUE(lane.send(answer_to(sent.notice, NoticeVerdict::kNotNow)));
  std::optional<Frame> notice;
  for (auto& each : lanes)
    if (!notice) notice = each->receive_type(FrameType::kNotify, Ms{500});
  ASSERT_TRUE(notice.has_value());
  EXPECT_EQ(text(*notice), "again");
  ASSERT_TRUE(lane.send(frame_of(FrameType::kNotifyAck, notice->header.transfer)));
  expect_done(0);
  EXPECT_EQ(counter(engine, "notifications_out"), 1u);
}

TEST_F(NoticeBehindSent, ARefusedChunkFailsTheTransfer) {
  Sent sent = post("never");
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.chunk, TCPX_STALE_REGION)));
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.notice, NoticeVerdict::kNotNow)));
  EXPECT_EQ(transfers[0].wait(patience(3'000)).code(), TCPX_STALE_REGION);
  EXPECT_TRUE(lanes[sent.lane]->ping());
  expect_nothing_more(*lanes[sent.lane]);
}

TEST_F(NoticeBehindSent, ARefusedNotificationFailsTheTransfer) {
  Sent sent = post("too long for it");
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.chunk)));
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.notice, NoticeVerdict::kNever)));
  EXPECT_EQ(transfers[0].wait(patience(3'000)).code(), TCPX_LIMIT);
}

// A cancel that has returned is the end of it, also for the notification.
TEST_F(NoticeBehindSent, ACancelWaitsForWhatBecomesOfIt) {
  Sent sent = post("too late");
  std::thread caller = cancel_in_a_thread(transfers[0]);
  EXPECT_TRUE(lanes[sent.lane]->send(answer_to(sent.chunk)));
  EXPECT_TRUE(lanes[sent.lane]->ping());
  std::this_thread::sleep_for(Ms{50});
  EXPECT_FALSE(cancelled) << "it may still be delivered";
  EXPECT_TRUE(lanes[sent.lane]->send(answer_to(sent.notice, NoticeVerdict::kDelivered)));
  caller.join();
  EXPECT_TRUE(succeeded(transfers[0].poll())) << "all of it had arrived";
}

TEST_F(NoticeBehindSent, ACancelHearsOfTheEndOnALostLane) {
  for (uint64_t delivered : {0, 1}) {
    SCOPED_TRACE(delivered);
    if (delivered == 1) start_anew();
    Sent sent = post("lost");
    std::thread caller = cancel_in_a_thread(transfers[0]);
    RawClient& other = lose(sent.lane, 1, delivered);
    caller.join();
    EXPECT_EQ(transfers[0].poll().code(), delivered == 1 ? TCPX_OK : TCPX_CANCELLED);
    expect_nothing_more(other);
  }
}

// Whatever it says: while chunks are under way the transfer must not end, its memory is in use.
TEST_F(NoticeBehindSent, AnsweredBeforeItsDataEndsTheSession) {
  for (NoticeVerdict verdict : {NoticeVerdict::kDelivered, NoticeVerdict::kNever}) {
    SCOPED_TRACE(static_cast<int>(verdict));
    if (verdict != NoticeVerdict::kDelivered) start_anew();
    Sent sent = post("early");
    ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.notice, verdict)));
    EXPECT_TRUE(lanes[sent.lane]->closes());
    EXPECT_EQ(transfers[0].wait(patience(3'000)).code(), TCPX_PROTOCOL_ERROR);
  }
}

TEST_F(NoticeBehindSent, AnAnswerForAnotherTransferEndsTheSession) {
  Sent sent = post("mine");
  sent.notice.header.transfer += 1;
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.notice, NoticeVerdict::kDelivered)));
  EXPECT_TRUE(lanes[sent.lane]->closes());
}

// The peer's application was told, and may have other plans for the memory by now.
TEST_F(NoticeBehindSent, WhatWasDeliveredOnALostLaneIsNotSentAgain) {
  Sent sent = post("delivered");
  RawClient& other = lose(sent.lane, 1, 0b1);
  expect_done(0);
  expect_nothing_more(other);
  EXPECT_EQ(transfers[0].receipt().lanes_lost, 1u);
  EXPECT_EQ(transfers[0].receipt().retries, 0u);
}

TEST_F(NoticeBehindSent, WhatDidNotArriveOnALostLaneIsSentAgainWithItsData) {
  for (uint64_t brought : {0, 1}) {
    SCOPED_TRACE(brought);
    if (brought == 1) start_anew();
    Sent sent = post("not delivered");
    RawClient& other = lose(sent.lane, brought, 0);
    auto chunk = other.receive();
    ASSERT_TRUE(chunk && chunk->header.type == FrameType::kWrite);
    EXPECT_EQ(chunk->payload, sent.chunk.payload);
    auto notice = other.receive();
    ASSERT_TRUE(notice && notice->header.type == FrameType::kNotifyBehind);
    ASSERT_TRUE(other.send(answer_to(*chunk)));
    ASSERT_TRUE(other.send(answer_to(*notice, NoticeVerdict::kDelivered)));
    expect_done(0);
    EXPECT_EQ(transfers[0].receipt().retries, 1u);
  }
}

// The data is confirmed, the answer to the notification was lost with the lane.
TEST_F(NoticeBehindSent, ConfirmedDataIsNotSentAgain) {
  Sent sent = post("alone");
  ASSERT_TRUE(lanes[sent.lane]->send(answer_to(sent.chunk)));
  ASSERT_TRUE(lanes[sent.lane]->ping());
  RawClient& other = lose(sent.lane, 0, 0);
  auto notice = other.receive();
  ASSERT_TRUE(notice && notice->header.type == FrameType::kNotify);
  ASSERT_TRUE(other.send(frame_of(FrameType::kNotifyAck, notice->header.transfer)));
  expect_done(0);
  expect_nothing_more(other);
}

// Several on one lane: the first was answered, of the others the peer says what became of each.
TEST_F(NoticeBehindSent, EachOnALostLaneHasItsOwnFate) {
  std::vector<std::pair<size_t, Sent>> on_lane[2];
  for (size_t i = 0; i < 8; ++i) post_only(std::to_string(i));
  for (size_t i = 0; i < 8; ++i) {
    Sent sent = receive();
    on_lane[sent.lane].emplace_back(std::stoull(text(sent.notice)), sent);
  }
  uint32_t lane = on_lane[0].size() >= 3 ? 0 : 1;
  auto& lost = on_lane[lane];
  ASSERT_GE(lost.size(), 3u);
  ASSERT_TRUE(lanes[lane]->send(answer_to(lost[0].second.chunk)));
  ASSERT_TRUE(lanes[lane]->send(answer_to(lost[0].second.notice, NoticeVerdict::kDelivered)));
  expect_done(lost[0].first);
  for (auto& [i, sent] : on_lane[1 - lane]) {  // it has room for what comes again
    ASSERT_TRUE(lanes[1 - lane]->send(answer_to(sent.chunk)));
    ASSERT_TRUE(lanes[1 - lane]->send(answer_to(sent.notice, NoticeVerdict::kDelivered)));
  }
  RawClient& other = lose(lane, 3, 0b110);  // the first and the second, not the third
  expect_done(lost[1].first);
  for (size_t i = 2; i < lost.size(); ++i) {
    auto chunk = other.receive();
    ASSERT_TRUE(chunk && chunk->header.type == FrameType::kWrite);
    bool known = false;
    for (size_t k = 2; k < lost.size(); ++k)
      known |= chunk->header.transfer == lost[k].second.chunk.header.transfer;
    EXPECT_TRUE(known) << "delivered, and sent again";
    ASSERT_TRUE(other.receive_type(FrameType::kNotifyBehind).has_value());
  }
  expect_nothing_more(other);
}

// A peer that the test speaks for writes to the engine.
class NoticeBehindReceived : public RawLanes {
 protected:
  static constexpr uint64_t kBytes = 4'096;

  void SetUp() override {
    second = start_with_two_lanes({{"max_notify_bytes", "1K"}});
    ASSERT_TRUE(first->ping() && second->ping());
    memory = make_local(engine, kBytes, kReadWrite, 5);
  }
  void TearDown() override { engine.destroy(); }
  void write(RawClient& lane, uint64_t transfer, uint32_t chunk, uint64_t bytes) {
    send_write(lane, transfer, chunk, bytes);
    ASSERT_TRUE(lane.receive_type(FrameType::kAck).has_value());
  }
  void send_write(RawClient& lane, uint64_t transfer, uint32_t chunk, uint64_t bytes) {
    wire::Header header = frame_of(FrameType::kWrite, transfer);
    header.chunk = chunk;
    header.payload_bytes = bytes;
    wire::Piece piece{memory.region, 0, bytes};
    std::vector<wire::Piece> pieces = {piece};
    std::vector<uint8_t> payload(bytes, 0x5a);
    ASSERT_TRUE(lane.send(header, pieces, payload));
  }
  NoticeVerdict notify(RawClient& lane, uint64_t transfer, uint32_t chunks, size_t bytes = 2) {
    wire::Header header = frame_of(FrameType::kNotifyBehind, transfer);
    header.chunk = chunks;
    header.payload_bytes = bytes;
    EXPECT_TRUE(lane.send(header, {}, std::vector<uint8_t>(bytes, 'x')));
    auto answer = lane.receive_type(FrameType::kNotifyBehindAck);
    EXPECT_TRUE(answer && answer->header.transfer == transfer);
    return answer ? answer->header.verdict() : NoticeVerdict{99};
  }
  void expect_delivered(int count) {
    Notification got;
    for (int i = 0; i < count; ++i) EXPECT_TRUE(succeeded(engine.next_notification(&got, kLong)));
    EXPECT_TRUE(engine.next_notification(&got, Ms{30}).in_progress()) << "one too many";
  }

  std::unique_ptr<RawClient> second;
  Local memory;
};

TEST_F(NoticeBehindReceived, IsDeliveredBehindAllChunksOfItsTransfer) {
  write(*first, 7, 0, 100);
  EXPECT_EQ(notify(*first, 7, 1), NoticeVerdict::kDelivered);
  write(*first, 8, 0, 100);
  write(*first, 8, 1, 100);
  EXPECT_EQ(notify(*first, 8, 2), NoticeVerdict::kDelivered);
  expect_delivered(2);
}

TEST_F(NoticeBehindReceived, IsNotDeliveredBehindAnythingElse) {
  EXPECT_EQ(notify(*first, 7, 1), NoticeVerdict::kNotNow) << "no data at all";
  EXPECT_EQ(notify(*first, 0, 0), NoticeVerdict::kNotNow) << "of nothing";
  write(*first, 7, 0, 100);
  EXPECT_EQ(notify(*first, 7, 2), NoticeVerdict::kNotNow) << "a chunk is missing";
  write(*first, 8, 0, kBytes + 1);
  EXPECT_EQ(notify(*first, 8, 1), NoticeVerdict::kNotNow) << "its chunk was refused";
  write(*first, 9, 0, 100);
  write(*first, 9, 1, kBytes + 1);
  write(*first, 9, 2, 100);
  EXPECT_EQ(notify(*first, 9, 3), NoticeVerdict::kNotNow) << "one of its chunks was refused";
  write(*first, 10, 0, 100);
  write(*first, 11, 0, 100);
  EXPECT_EQ(notify(*first, 10, 1), NoticeVerdict::kNotNow) << "behind another transfer";
  write(*first, 12, 0, 100);
  EXPECT_EQ(notify(*second, 12, 1), NoticeVerdict::kNotNow) << "on another lane";
  expect_delivered(0);
  EXPECT_TRUE(first->ping());
}

TEST_F(NoticeBehindReceived, OnceOnly) {
  write(*first, 7, 0, 100);
  EXPECT_EQ(notify(*first, 7, 1), NoticeVerdict::kDelivered);
  EXPECT_EQ(notify(*first, 7, 1), NoticeVerdict::kNotNow);
  expect_delivered(1);
}

// Behind our goodbye no answer leaves: what was delivered would be reported as lost.
TEST_F(NoticeBehindReceived, NothingIsDeliveredBehindAGoodbye) {
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(engine.accept(&peer, kLong)));
  std::thread caller([&] { EXPECT_TRUE(succeeded(engine.disconnect(peer))); });
  EXPECT_TRUE(first->receive_type(FrameType::kBye).has_value());
  send_write(*first, 7, 0, 100);
  wire::Header behind = frame_of(FrameType::kNotifyBehind, 7);
  behind.chunk = 1;
  wire::Header alone = frame_of(FrameType::kNotify, 1);
  behind.payload_bytes = alone.payload_bytes = 1;
  std::vector<uint8_t> payload = {'x'};
  EXPECT_TRUE(first->send(behind, {}, payload));
  EXPECT_TRUE(first->send(alone, {}, payload));
  caller.join();
  expect_delivered(0);
}

TEST_F(NoticeBehindReceived, TooLongIsRefused) {
  write(*first, 7, 0, 100);
  EXPECT_EQ(notify(*first, 7, 1, 1025), NoticeVerdict::kNever);
  write(*first, 8, 0, 100);
  EXPECT_EQ(notify(*first, 8, 1, 1024), NoticeVerdict::kDelivered);
  expect_delivered(1);
}

TEST_F(NoticeBehindReceived, WhatBecameOfThemIsToldWhenTheLaneIsLost) {
  write(*second, 7, 0, 100);
  EXPECT_EQ(notify(*second, 7, 1), NoticeVerdict::kDelivered);
  write(*second, 8, 0, kBytes + 1);
  EXPECT_EQ(notify(*second, 8, 1), NoticeVerdict::kNotNow);
  write(*second, 9, 0, 100);
  EXPECT_EQ(notify(*second, 9, 1), NoticeVerdict::kDelivered);
  second.reset();
  wire::Header down = frame_of(FrameType::kLaneDown);
  down.chunk = 1;
  ASSERT_TRUE(first->send(down));
  auto answer = first->receive_type(FrameType::kLaneDownAck);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->header.aux, 3u);
  EXPECT_EQ(answer->header.transfer, 0b101u);
}

// Real engines, small WRITEs on all lanes, and lanes that break under them. The receiver looks at
// the data when it is told, and then uses the memory for something else.
TEST(NoticeBehindLaneLoss, ExactlyOnceWithTheDataAndNothingAfterwards) {
  constexpr uint64_t kBytes = 16 << 10, kSlots = 32, kLanes = 8, kCuts = 5;
  const uint64_t rounds = smaller_if_sanitized<uint64_t>(60, 20);
  Pair pair(fault_options({{"lanes", std::to_string(kLanes)}, {"peer_timeout", "20s"}}));
  pair.allocate(kSlots * kBytes);
  std::vector<Transfer> transfers;
  for (uint64_t slot = 0; slot < kSlots; ++slot)
    transfers.push_back(pair.prepare(TCPX_WRITE, kBytes, slot * kBytes));
  for (uint64_t round = 1; round <= rounds; ++round) {
    SCOPED_TRACE(round);
    fill(*pair.memory_a.memory, 0, kSlots * kBytes, Pattern(7, round), 0);
    for (uint64_t slot = 0; slot < kSlots; ++slot)
      ASSERT_TRUE(succeeded(transfers[slot].post_notify(std::to_string(slot))));
    if (round % (rounds / kCuts) == 0 && round < rounds) cut_lanes(1);
    std::vector<int> seen(kSlots);
    for (uint64_t i = 0; i < kSlots; ++i) {
      Notification got;
      ASSERT_TRUE(succeeded(pair.b.next_notification(&got, kLong)));
      uint64_t slot = std::stoull(std::string(got.view()));
      EXPECT_EQ(++seen[slot], 1) << "slot " << slot;
      EXPECT_EQ(
          mismatch(*pair.memory_b.memory, slot * kBytes, kBytes, Pattern(7, round), slot * kBytes),
          -1)
          << "slot " << slot;
      fill(*pair.memory_b.memory, slot * kBytes, kBytes, Pattern(8, round), slot * kBytes);
    }
    for (Transfer& transfer : transfers) ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    EXPECT_EQ(mismatch(*pair.memory_b.memory, 0, kSlots * kBytes, Pattern(8, round), 0), -1)
        << "something landed after its notification";
    Notification more;
    ASSERT_TRUE(pair.b.next_notification(&more, Ms{0}).in_progress());
  }
  EXPECT_GE(counter(pair.a, "lanes_lost"), 3u);
}

}  // namespace
}  // namespace tcpx::test
