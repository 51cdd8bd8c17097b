#include "engine/notice_queue.h"

#include <gtest/gtest.h>

#include "engine/notices_seen.h"

namespace tcpx {
namespace {

constexpr uint64_t kEntry = NoticeQueue::kEntryBytes;
constexpr uint64_t kCapacity = 1 << 20;

struct Shares : ::testing::Test {
  std::shared_ptr<InboxShare> peer(uint64_t id) { return std::make_shared<InboxShare>(id); }
  bool push(const std::shared_ptr<InboxShare>& share, size_t bytes) {
    return queue.push(share, MessageBytes(bytes), false);
  }
  size_t fill(const std::shared_ptr<InboxShare>& share, size_t bytes) {
    size_t count = 0;
    while (push(share, bytes)) ++count;
    return count;
  }
  uint64_t pop() {
    uint64_t from = 0;
    std::vector<uint8_t> buffer(kCapacity);
    size_t length = buffer.size();
    return queue.pop(0, &from, buffer.data(), &length) == TCPX_OK ? from : 0;
  }
  NoticeQueue queue{kCapacity};
};

TEST_F(Shares, APeerMayHoldAsMuchAsIsStillFree) {
  auto greedy = peer(1), second = peer(2), third = peer(3);
  const size_t size = 1000;
  const double all = static_cast<double>(kCapacity) / static_cast<double>(size + kEntry);
  EXPECT_NEAR(static_cast<double>(fill(greedy, size)), all / 2, 2);
  EXPECT_NEAR(static_cast<double>(fill(second, size)), all / 4, 2);
  EXPECT_TRUE(push(third, size)) << "something is always left";
  EXPECT_FALSE(push(greedy, size));
}

TEST_F(Shares, EmptyMessagesTakeRoomToo) {
  auto greedy = peer(1), other = peer(2);
  EXPECT_LE(fill(greedy, 0), kCapacity / kEntry / 2);
  EXPECT_TRUE(push(other, 0));
}

TEST_F(Shares, WhatIsReadOrDoesNotComeIsFreeAgain) {
  auto one = peer(1);
  size_t most = fill(one, 100);
  EXPECT_EQ(pop(), 1u);
  EXPECT_TRUE(push(one, 100));
  while (pop() != 0) {
  }
  EXPECT_EQ(one->held, 0u);
  EXPECT_TRUE(queue.reserve(*one, 400'000));
  EXPECT_FALSE(queue.reserve(*one, 400'000)) << "its bytes are still to come, its room is taken";
  queue.give_back(*one, 400'000);
  EXPECT_EQ(fill(one, 100), most);
}

TEST_F(Shares, TheLongestMessageFitsIntoAnEmptyQueue) {
  auto one = peer(1);
  EXPECT_FALSE(queue.fits(kCapacity));
  ASSERT_TRUE(queue.fits(kCapacity - kEntry));
  EXPECT_TRUE(push(one, kCapacity - kEntry));
  EXPECT_FALSE(push(one, 0));
  EXPECT_EQ(pop(), 1u);
  EXPECT_FALSE(push(one, kCapacity));
}

TEST(NoticesSeen, KnowsASpanOfIdsWhateverWasLeftOut) {
  NoticesSeen seen;
  for (uint64_t id = 2; id < 100'000; id += 3) {
    EXPECT_FALSE(seen.has(id)) << id;
    seen.add(id);
    EXPECT_TRUE(seen.has(id));
    EXPECT_FALSE(seen.has(id + 1)) << id;
    EXPECT_FALSE(seen.has(id - 1) && id < NoticesSeen::kSpan) << id;
    if (id < 3000) continue;
    EXPECT_TRUE(seen.has(id - 3 * 500)) << id;
    EXPECT_FALSE(seen.has(id - 3 * 500 + 1)) << "never came, and may yet";
  }
}

TEST(NoticesSeen, JumpsAndTheLastIdAreTaken) {
  NoticesSeen seen;
  for (uint64_t id : {uint64_t{1}, uint64_t{1} << 40, UINT64_MAX - 1, UINT64_MAX}) {
    EXPECT_FALSE(seen.has(id)) << id;
    seen.add(id);
    EXPECT_TRUE(seen.has(id)) << id;
  }
  EXPECT_TRUE(seen.has(5)) << "far behind: taken for delivered";
  EXPECT_FALSE(seen.has(UINT64_MAX - 2));
}

}  // namespace
}  // namespace tcpx
