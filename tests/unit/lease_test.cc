#include "path/lease.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

void poll(Lease& lease, Nanos from, Nanos to) {
  lease.poll_begins(from);
  lease.poll_ends(to);
}

TEST(Lease, OnePollIsNoneTwoThatAreCloseAre) {
  Lease lease;
  EXPECT_EQ(lease.next_look(kSecond), 0);
  poll(lease, kSecond, kSecond);
  EXPECT_EQ(lease.next_look(kSecond), 0) << "the thread need not wait";
  poll(lease, kSecond + tuning::kPollsClose - 1, kSecond + tuning::kPollsClose);
  EXPECT_TRUE(lease.holds(kSecond + tuning::kPollsClose));
}

TEST(Lease, HoldsNowAsItDoesByTheClock) {
  Lease lease;
  EXPECT_FALSE(lease.holds());
  const Nanos now = now_ns() + kSecond;  // so that it does not end meanwhile
  poll(lease, now, now);
  poll(lease, now, now);
  EXPECT_TRUE(lease.holds());
  lease.kept(now_ns() - 2 * tuning::kLeaseLasts);
  EXPECT_FALSE(lease.holds());
}

TEST(Lease, PollsNowAndThenAreNone) {
  Lease lease;
  for (Nanos now = kSecond; now < 2 * kSecond; now += tuning::kPollsClose) {
    poll(lease, now, now);
    EXPECT_FALSE(lease.holds(now));
  }
}

// The bound: whenever it looked before, and however long the polls went on, the thread drives no
// later than this after the last of them.
TEST(Lease, NobodyDrivesForNoLongerThanALeaseLasts) {
  ASSERT_LE(tuning::kLeaseLasts, 100 * kMicro);
  for (Nanos woken = 0; woken < 300 * kMicro; woken += 7 * kMicro) {
    Lease lease;
    Nanos last = 0;
    Nanos look = kSecond + woken;  // an event wakes the thread
    for (Nanos now = kSecond; now < kSecond + 400 * kMicro; now += 11 * kMicro) {
      while (look <= now) {
        Nanos next = lease.next_look(look);
        if (next == 0) break;
        ASSERT_GT(next, look);
        look = next;
      }
      poll(lease, now, last = now + 3 * kMicro);
    }
    for (Nanos next; (next = lease.next_look(look)) != 0; look = next)
      ASSERT_LE(next, last + tuning::kLeaseLasts);
    EXPECT_LE(std::max(look, last), last + tuning::kLeaseLasts);
  }
}

// The thread looks now and then all the same: whoever keeps it may never come back.
TEST(Lease, WhatIsKeptForALongPostHoldsUntilItIsOver) {
  Lease lease;
  EXPECT_FALSE(lease.keep(kSecond)) << "there is none";
  EXPECT_FALSE(lease.holds(kSecond));
  poll(lease, kSecond, kSecond);
  poll(lease, kSecond, kSecond);
  EXPECT_TRUE(lease.keep(kSecond));
  EXPECT_TRUE(lease.holds(2 * kSecond));
  EXPECT_EQ(lease.next_look(2 * kSecond), 2 * kSecond + tuning::kLeaseLasts);
  lease.kept(3 * kSecond);
  EXPECT_TRUE(lease.holds(3 * kSecond));
  EXPECT_FALSE(lease.holds(3 * kSecond + tuning::kLeaseLasts));
}

}  // namespace
}  // namespace tcpx
