// Notifications to an application that does not read: held back, exactly once, and nobody else's
// business.
#include <set>

#include "fixture.h"

namespace tcpx::test {
namespace {

constexpr size_t kSize = 16 << 10;

std::string numbered(int number) {
  std::string text = std::to_string(number) + " ";
  return text + std::string(kSize - text.size(), 'x');
}

std::vector<int> read_all(Engine& engine, size_t count, Ms limit = kLong) {
  std::vector<int> out;
  Notification got;
  while (out.size() < count && engine.next_notification(&got, limit))
    out.push_back(std::stoi(std::string(got.view())));
  return out;
}

// An inbox for about thirty such messages of one peer.
Options small_inbox() {
  return {{"inbox_bytes", "1M"}, {"max_notify_bytes", "64K"}};
}

TEST(NoticeFlow, ALateReaderGetsAllOfThemOnceAndInOrder) {
  Pair pair(loopback_options({{"lanes", "1"}}), small_inbox());
  constexpr int kMany = 200;
  for (int i = 0; i < kMany; ++i) {  // nobody waits; the first ones may be confirmed all the same
    tcpx_code code = pair.a.notify(pair.b_at_a, numbered(i), Ms{0}).code();
    ASSERT_TRUE(code == TCPX_DEADLINE || code == TCPX_OK) << i << " " << code;
  }
  ASSERT_TRUE(eventually([&] { return counter(pair.a, "notifications_held_back") > 2; }));
  EXPECT_LT(counter(pair.b, "notifications_in"), 60u) << "the rest waits at the sender";
  std::vector<int> seen = read_all(pair.b, kMany);
  std::vector<int> sent(kMany);
  std::iota(sent.begin(), sent.end(), 0);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(seen, sent);
  Notification more;
  EXPECT_TRUE(pair.b.next_notification(&more, Ms{50}).in_progress());
}

TEST(NoticeFlow, WhatTheOutboxDoesNotTakeIsAnErrorAndDoesNotArrive) {
  Pair pair(loopback_options({{"outbox_bytes", "1M"}}), small_inbox());
  std::set<int> queued;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    Result result = pair.a.notify(pair.b_at_a, numbered(i), Ms{0});
    if (result.code() == TCPX_LIMIT)
      ++refused;
    else if (result.ok() || result.code() == TCPX_DEADLINE)
      queued.insert(i);
    else
      FAIL() << result.text();
  }
  EXPECT_GT(refused, 50);
  std::vector<int> seen = read_all(pair.b, queued.size());
  EXPECT_EQ(std::set<int>(seen.begin(), seen.end()), queued);
  EXPECT_EQ(seen.size(), queued.size());
  Notification more;
  EXPECT_TRUE(pair.b.next_notification(&more, Ms{100}).in_progress());
}

TEST(NoticeFlow, WhoWaitsIsHeldBackUntilThereIsRoom) {
  Pair pair(loopback_options({{"outbox_bytes", "256K"}}), small_inbox());
  constexpr int kMany = 150;
  std::thread sender([&] {
    for (int i = 0; i < kMany; ++i)
      ASSERT_TRUE(succeeded(pair.a.notify(pair.b_at_a, numbered(i), kLong))) << i;
  });
  EXPECT_TRUE(eventually([&] { return counter(pair.a, "notifications_held_back") > 0; }));
  std::vector<int> seen = read_all(pair.b, kMany);
  sender.join();
  ASSERT_EQ(seen.size(), size_t{kMany});
  for (int i = 0; i < kMany; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(NoticeFlow, AWriteWithANotificationWaitsForRoomOrItsDeadline) {
  Pair pair(loopback_options(), small_inbox());
  pair.allocate(4096);
  while (counter(pair.a, "notifications_held_back") == 0)
    (void)pair.a.notify(pair.b_at_a, numbered(7), Ms{0});
  Transfer late = pair.prepare(TCPX_WRITE, 4096);
  ASSERT_TRUE(succeeded(late.post_notify("0 never", Ms{300})));
  EXPECT_EQ(late.wait(kLong).code(), TCPX_DEADLINE);
  Transfer patient = pair.prepare(TCPX_WRITE, 4096);
  ASSERT_TRUE(succeeded(patient.post_notify("1 in time", kLong)));
  EXPECT_TRUE(patient.wait(Ms{100}).in_progress());
  std::string last;
  Notification got;
  while (pair.b.next_notification(&got, patience(2'000))) {
    last = std::string(got.view());
    EXPECT_NE(last, "0 never") << "its transfer had failed before it was sent";
  }
  EXPECT_EQ(last, "1 in time");
  EXPECT_TRUE(succeeded(patient.wait(kLong)));
}

TEST(NoticeFlow, OnePeerThatFillsTheInboxLeavesRoomForOthers) {
  Pair pair(loopback_options(), small_inbox());
  for (size_t length : {size_t{0}, kSize}) {
    uint64_t held_back = counter(pair.a, "notifications_held_back");
    for (int i = 0; counter(pair.a, "notifications_held_back") == held_back; ++i)
      (void)pair.a.notify(pair.b_at_a, std::string(length, 'g'), Ms{0});
  }
  Engine other = make_engine(loopback_options());
  tcpx_peer b = 0;
  ASSERT_TRUE(succeeded(other.connect(pair.b.connection_info(), &b)));
  ASSERT_TRUE(succeeded(other.peer_wait(b, kLong)));
  pair.allocate(4096);
  Local memory = make_local(other, 4096, 0, 5);
  for (int i = 0; i < 5; ++i) {
    Transfer transfer;
    ASSERT_TRUE(succeeded(other.prepare(b, TCPX_WRITE, {{memory.region, 0, 4096}},
                                        {{&pair.remote_b, 0, 4096}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post_notify(std::string(1000, 'o'))));
    EXPECT_TRUE(succeeded(transfer.wait(kLong)));
  }
}

// Both ends ask as much as they can at once, through the smallest of buffers: neither may stop
// reading the other.
TEST(NoticeFlow, BothWaysAtOnceThroughSmallBuffers) {
  for (const char* buffer : {"32K", "64K", "0"}) {
    SCOPED_TRACE(buffer);
    Pair pair(loopback_options({{"socket_buffer", buffer}, {"lanes", "2"}}));
    const int many = smaller_if_sanitized(1'200, 200);
    pair.allocate(1 << 20);
    auto send_all = [&](Engine& from, tcpx_peer to) {
      for (int i = 0; i < many; ++i) {
        tcpx_code code = from.notify(to, numbered(i), Ms{0}).code();
        EXPECT_TRUE(code == TCPX_OK || code == TCPX_DEADLINE) << tcpx_code_name(code);
      }
    };
    std::thread a_sends([&] { send_all(pair.a, pair.b_at_a); });
    std::thread b_sends([&] { send_all(pair.b, pair.a_at_b); });
    std::thread a_reads([&] { EXPECT_EQ(read_all(pair.a, many).size(), size_t(many)); });
    Transfer transfer = pair.prepare(TCPX_WRITE, 1 << 20);
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(succeeded(transfer.post()));
      EXPECT_TRUE(succeeded(transfer.wait(kLong)));
    }
    EXPECT_EQ(read_all(pair.b, many).size(), size_t(many));
    for (std::thread* thread : {&a_sends, &b_sends, &a_reads}) thread->join();
    EXPECT_EQ(counter(pair.a, "lanes_lost") + counter(pair.b, "lanes_lost"), 0u);
  }
}

}  // namespace
}  // namespace tcpx::test
