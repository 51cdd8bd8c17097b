// Notifications: any bytes, exactly once, after the data.
#include <sys/resource.h>

#include <set>

#include "fixture.h"

namespace tcpx::test {
namespace {

class Notifications : public Conformance {
 protected:
  // The peer's next notification, as text of bytes.
  static std::string next(Remote& peer, int64_t ms = 10'000) {
    std::istringstream words(peer.program("next {}", ms));
    std::string from, hex;
    words >> from >> hex;
    Bytes bytes = from_hex(hex);
    return std::string(bytes.begin(), bytes.end());
  }
  static void expect_none(Remote& peer, int64_t ms = 30) {
    EXPECT_EQ(peer.program.call("next {}", ms).code, TCPX_IN_PROGRESS) << "one more than was sent";
  }
};

TEST_P(Notifications, StandaloneBytesArriveUnchangedAndOnce) {
  Remote& peer = connected_peer();
  std::string binary("a\0b\n\xff\0", 6);
  std::string large(1 << 20, '\0');
  Pattern(301).fill(large.data(), large.size(), 0);
  for (const std::string& message : {std::string("hello"), std::string(), binary, large,
                                     std::string(255, 'x'), std::string(257, 'y')}) {
    SCOPED_TRACE(message.size());
    ASSERT_TRUE(succeeded(engine.notify(peer.id, message, kLong)));
    EXPECT_TRUE(next(peer) == message);
    expect_none(peer);
  }
}

TEST_P(Notifications, BoundToATransferIsSeenAfterItsData) {
  Remote& peer = connected_peer();
  const uint64_t length = 2 * row().chunk + 100;
  LocalRegion& local = local_memory(length, 311);
  PeerRegion& remote = peer.memory(length, 312);
  Transfer transfer = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, length}});
  for (uint64_t round = 1; round <= 10; ++round) {
    fill(*local.memory, 0, length, Pattern(311, round), 0);
    std::string message = "round " + std::to_string(round);
    ASSERT_TRUE(succeeded(transfer.post_notify(message)));
    // The peer sees it while we do not even poll.
    ASSERT_EQ(next(peer), message);
    ASSERT_EQ(peer.program.check(remote.name, 0, length, 311, round, 0), "");
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    ASSERT_TRUE(succeeded(transfer.poll()));  // polling an ended transfer sends nothing again
  }
  expect_none(peer);
}

TEST_P(Notifications, ReadEmptyAndZeroByteTransfersNotifyToo) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(10'000, 321);
  PeerRegion& remote = peer.memory(10'000, 322);
  Transfer read = prepare(peer, TCPX_READ, local, remote, {{0, 0, 10'000}});
  ASSERT_TRUE(succeeded(read.post_notify("read done")));
  ASSERT_TRUE(succeeded(read.wait(kLong)));
  EXPECT_EQ(next(peer), "read done");
  Transfer empty = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, 0}});
  ASSERT_TRUE(succeeded(empty.post_notify("")));
  ASSERT_TRUE(succeeded(empty.wait(kLong)));
  EXPECT_EQ(next(peer), "");
  ASSERT_TRUE(succeeded(empty.post()));  // without one this time
  ASSERT_TRUE(succeeded(empty.wait(kLong)));
  expect_none(peer);
}

TEST_P(Notifications, ThousandAreDeliveredExactlyOnceInAnyOrder) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(4096, 331);
  PeerRegion& remote = peer.memory(4096, 332);
  std::multiset<std::string> sent, seen;
  Transfer transfer = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, 4096}});
  for (int i = 0; i < 500; ++i) {
    sent.insert("t" + std::to_string(i));
    sent.insert("s" + std::to_string(i));
    ASSERT_TRUE(succeeded(transfer.post_notify("t" + std::to_string(i))));
    ASSERT_TRUE(succeeded(engine.notify(peer.id, "s" + std::to_string(i), kLong)));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  }
  for (size_t i = 0; i < sent.size(); ++i) seen.insert(next(peer));
  EXPECT_TRUE(seen == sent);
  expect_none(peer);
}

TEST_P(Notifications, TheTargetMayAnswerOverTheInboundSession) {
  Remote& peer = connected_peer();
  std::string us = peer.program("accept 10000");
  peer.program("notify {} {} 10000", us, to_hex(std::string_view("pong")));
  Notification got;
  ASSERT_TRUE(succeeded(engine.next_notification(&got, kLong)));
  EXPECT_EQ(got.view(), "pong");
  EXPECT_EQ(got.peer, peer.id) << "a notification names the session it came by";
  EXPECT_TRUE(engine.next_notification(&got, Ms{0}).in_progress());
}

TEST_P(Notifications, AFailedTransferNeverNotifies) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(1 << 20, 341);
  PeerRegion& remote = peer.memory(4096, 342);
  tcpx_remote_region forged = remote.remote;
  forged.length = 1 << 20;
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer.id, TCPX_WRITE, {{local.id, 0, 1 << 20}},
                                       {{&forged, 0, 1 << 20}}, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post_notify("must not arrive")));
  EXPECT_EQ(transfer.wait(kLong).code(), TCPX_OUT_OF_RANGE);
  expect_none(peer, 100);
  ASSERT_TRUE(succeeded(engine.notify(peer.id, "after", kLong)));
  EXPECT_EQ(next(peer), "after");
  peer.expect_intact(remote);
}

TEST_P(Notifications, TooLargeIsRefusedAndTheConnectionSurvives) {
  Remote& peer = connected_peer();
  std::string large((16 << 20) + 1, 'z');  // one more than the default max_notify_bytes
  tcpx_code code = engine.notify(peer.id, large, kLong).code();
  EXPECT_TRUE(code == TCPX_LIMIT || code == TCPX_INVALID_ARGUMENT) << tcpx_code_name(code);
  ASSERT_TRUE(succeeded(engine.notify(peer.id, "small", kLong)));
  EXPECT_EQ(next(peer), "small");
}

TCPX_INSTANTIATE_CONFORMANCE(Notifications);

// Both ends here, so that the receiver can look at the memory the very moment it sees the message.
TEST(NotificationOrder, DataIsVisibleTheMomentTheNotificationIsSeen) {
  Pair pair(loopback_options({{"lanes", "4"}, {"chunk_bytes", "64K"}}));
  const uint64_t length = 1 << 20;
  pair.allocate(length);
  const uint64_t rounds = smaller_if_sanitized<uint64_t>(300, 50);
  std::atomic<uint64_t> bad{0};
  std::atomic<uint64_t> seen{0};
  std::thread receiver([&] {
    for (uint64_t round = 0; round < rounds; ++round) {
      Notification got;
      if (!pair.b.next_notification(&got, kLong)) return;
      if (mismatch(*pair.memory_b.memory, 0, length, Pattern(7, round), 0) >= 0) ++bad;
      seen = round + 1;
    }
  });
  Transfer transfer = pair.prepare(TCPX_WRITE, length);
  for (uint64_t round = 0; round < rounds; ++round) {
    fill(*pair.memory_a.memory, 0, length, Pattern(7, round), 0);
    if (!transfer.post_notify("x") || !transfer.wait(kLong)) break;
    // Content must stay until it has been looked at.
    if (!eventually([&] { return seen > round; }, kLong, Ms{0})) break;
  }
  receiver.join();
  EXPECT_EQ(seen, rounds);
  EXPECT_EQ(bad, 0u);
}

// Who asks again and again must not pay a sleep each time, as a condition variable would have it.
TEST(NotificationAsking, WithoutATimeoutDoesNotSleep) {
  Pair pair(loopback_options());
  auto sleeps = [] {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  };
  constexpr long kTimes = 2'000;
  long before = sleeps();
  Notification note;
  tcpx_peer peer = 0;
  for (long i = 0; i < kTimes; ++i) {
    EXPECT_TRUE(pair.a.next_notification(&note, Ms{0}).in_progress());
    EXPECT_TRUE(pair.a.accept(&peer, Ms{0}).in_progress());
  }
  EXPECT_LT(sleeps() - before, kTimes / 10);
}

TEST(NotificationBuffer, TooSmallABufferLeavesItQueued) {
  Pair pair(loopback_options());
  std::string message(1000, 'm');
  ASSERT_TRUE(succeeded(pair.a.notify(pair.b_at_a, message, kLong)));
  char buffer[1000];
  size_t length = 10;
  tcpx_peer peer = 0;
  ASSERT_EQ(tcpx_next_notification(pair.b.raw(), 5000, &peer, buffer, &length),
            TCPX_BUFFER_TOO_SMALL);
  ASSERT_EQ(length, 1000u);
  ASSERT_EQ(tcpx_next_notification(pair.b.raw(), 0, nullptr, buffer, &length), TCPX_OK);
  EXPECT_EQ(std::string(buffer, length), message);
  EXPECT_EQ(tcpx_next_notification(pair.b.raw(), 0, nullptr, buffer, &length), TCPX_IN_PROGRESS);
}

}  // namespace
}  // namespace tcpx::test
