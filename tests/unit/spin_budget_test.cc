#include "path/spin_budget.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

constexpr Nanos kMost = 200 * kMicro;

// Polls every microsecond in vain, from `now` on. How long until it is time to sleep.
Nanos spin(SpinBudget& budget, Nanos* now, bool engaged = false) {
  Nanos from = *now;
  while (budget.polled(*now, false, engaged)) *now += kMicro;
  return *now - from;
}

TEST(SpinBudget, SpinsAsLongAsItMayAndFiveTimesThatWhereSomethingIsDue) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  EXPECT_EQ(spin(budget, &now), kMost);
  budget.slept(now, now + kSecond);
  now += kSecond;
  EXPECT_EQ(spin(budget, &now, true), tuning::kEngagedFactor * kMost);
}

TEST(SpinBudget, ALongSleepSaysNothingAgainstTheSpinBeforeIt) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(spin(budget, &now), kMost) << i;
    budget.slept(now, now + tuning::kShortSleep);
    now += tuning::kShortSleep;
  }
}

TEST(SpinBudget, WhatCameRightAfterASpinHalvesTheNextOne) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  for (Nanos expected = kMost; expected > 10 * kMicro; expected /= 2) {
    EXPECT_NEAR(static_cast<double>(spin(budget, &now)), static_cast<double>(expected), kMicro);
    budget.slept(now, now + tuning::kShortSleep - 1);
    now += tuning::kShortSleep;
  }
}

// The loop's thread leaves to sleep, and hears how long it slept when it has come back.
TEST(SpinBudget, WhoeverPollsNextTheSleepCounts) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  spin(budget, &now);
  budget.begin_anew();
  budget.slept(now, now + kMicro);
  EXPECT_EQ(budget.budget(), kMost / 2);
}

TEST(SpinBudget, WhatComesWhileSpinningDoublesIt) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  for (int i = 0; i < 6; ++i) {
    spin(budget, &now);
    budget.slept(now, now + kMicro);
  }
  Nanos low = budget.budget();
  EXPECT_LT(low, kMost / 32);
  ASSERT_TRUE(budget.polled(now, false, true));
  ASSERT_TRUE(budget.polled(now + kMicro, true, true));
  EXPECT_EQ(budget.budget(), 2 * low + kMicro);
  for (int i = 0; i < 20; ++i) {
    budget.polled(now, false, true);
    budget.polled(now, true, true);
  }
  EXPECT_EQ(budget.budget(), kMost) << "and no more than it may";
}

// Found at once, without a spin: that says nothing.
TEST(SpinBudget, WorkThatFollowsWorkChangesNothing) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  spin(budget, &now);
  budget.slept(now, now + kMicro);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(budget.polled(now + i, true, false));
  EXPECT_EQ(budget.budget(), kMost / 2);
}

TEST(SpinBudget, WhoLosesItsCoreSleepsAtOnceAndSpinsLessNextTime) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  ASSERT_TRUE(budget.polled(now, false, true));
  EXPECT_FALSE(budget.polled(now + tuning::kPreempted + 1, false, true));
  EXPECT_EQ(budget.budget(), kMost / 2);
}

// However often spinning was in vain: it is tried again, and a single success is enough to go on.
TEST(SpinBudget, ItNeverGivesUpForGood) {
  SpinBudget budget(kMost);
  Nanos now = kSecond;
  for (int i = 0; i < 12; ++i) {
    spin(budget, &now);
    budget.slept(now, now + kMicro);
  }
  ASSERT_LT(budget.budget(), kMicro);
  Nanos longest = 0;
  for (uint32_t idle_times = 0; idle_times < tuning::kProbeEvery; ++idle_times) {
    longest = std::max(longest, spin(budget, &now));
    budget.slept(now, now + kMicro);
  }
  EXPECT_EQ(longest, kMost / 4);
}

TEST(SpinBudget, NothingIsSpunWhereNothingMayBe) {
  SpinBudget budget(0);
  Nanos now = kSecond;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(spin(budget, &now, true), 0);
}

TEST(Drivers, SpinWhileACoreIsFree) {
  Drivers drivers;
  drivers.spin_up_to(2);
  drivers.enter();
  drivers.enter();
  EXPECT_TRUE(drivers.may_spin());
  drivers.enter();
  EXPECT_FALSE(drivers.may_spin());
  drivers.leave();
  EXPECT_TRUE(drivers.may_spin());
}

}  // namespace
}  // namespace tcpx
