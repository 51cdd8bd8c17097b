#include "engine/refusal_budget.h"

#include <gtest/gtest.h>

namespace tcpx {
namespace {

int64_t spend_all(RefusalBudget& budget, Nanos now) {
  int64_t spent = 0;
  while (budget.has_some(now)) {
    budget.spend(now);
    ++spent;
  }
  return spent;
}

TEST(RefusalBudget, ABurstIsFreeAndThenSoManyASecond) {
  RefusalBudget budget;
  Nanos now = 7 * kSecond;
  EXPECT_EQ(spend_all(budget, now), RefusalBudget::kBurst);
  EXPECT_FALSE(budget.spend(now));
  EXPECT_EQ(spend_all(budget, now + kSecond), RefusalBudget::kPerSecond);
  int64_t in_small_steps = 0;
  for (Nanos later = 0; later < kSecond; later += 20 * kMilli + 1)
    in_small_steps += spend_all(budget, now + kSecond + later);
  EXPECT_NEAR(static_cast<double>(in_small_steps), RefusalBudget::kPerSecond, 25) << "none is lost";
}

TEST(RefusalBudget, APauseEarnsNoMoreThanABurst) {
  RefusalBudget budget;
  EXPECT_EQ(spend_all(budget, kSecond), RefusalBudget::kBurst);
  EXPECT_EQ(spend_all(budget, 1'000'000 * kSecond), RefusalBudget::kBurst);
  EXPECT_EQ(spend_all(budget, kNever), RefusalBudget::kBurst);
}

TEST(RefusalBudget, TheClockOfAnotherThreadMayBeBehind) {
  RefusalBudget budget;
  EXPECT_EQ(spend_all(budget, 10 * kSecond), RefusalBudget::kBurst);
  EXPECT_FALSE(budget.has_some(9 * kSecond));
  EXPECT_TRUE(budget.has_some(11 * kSecond));
}

}  // namespace
}  // namespace tcpx
