#include "gpu/slots.h"

#include <gtest/gtest.h>

#include "../support/pattern.h"

namespace tcpx::gpu {
namespace {

constexpr auto kArrives = SlotHolder::kArrives, kIsThere = SlotHolder::kIsThere;

TEST(Slots, TheSameFewAreTakenAgainAndAgain) {
  Slots slots(4, 1);
  EXPECT_EQ(slots.take(1, kIsThere), 0u);
  EXPECT_EQ(slots.take(1, kIsThere), 1u);
  slots.give(0);
  EXPECT_EQ(slots.take(1, kIsThere), 0u);
  EXPECT_EQ(slots.chunks(), 2u);
}

TEST(Slots, WhatArrivesNeverTakesTheLast) {
  Slots slots(3, 1);
  EXPECT_EQ(slots.room(kArrives), 2u);
  const uint32_t first = slots.take(1, kArrives);
  ASSERT_NE(slots.take(1, kArrives), Slots::kNone);
  EXPECT_EQ(slots.room(kArrives), 0u);
  EXPECT_EQ(slots.take(1, kArrives), Slots::kNone);
  EXPECT_EQ(slots.room(kIsThere), 1u);
  // It leaves in the GPU's time now: one more may come.
  slots.has_arrived(first);
  EXPECT_EQ(slots.room(kArrives), 1u);
  EXPECT_EQ(slots.take(1, kArrives), 2u);
  EXPECT_EQ(slots.room(kIsThere), 0u);
  slots.give(first);
  EXPECT_EQ(slots.room(kArrives), 0u) << "that is the last one now";
  EXPECT_EQ(slots.take(1, kIsThere), first);
}

TEST(Slots, ShortOnesShareAGroup) {
  Slots slots(12, 4);
  EXPECT_EQ(slots.take(1, kArrives), 0u);
  EXPECT_EQ(slots.take(2, kArrives), 1u);
  EXPECT_EQ(slots.take(2, kArrives), 4u);
  EXPECT_EQ(slots.take(1, kArrives), 3u);
  EXPECT_EQ(slots.take(3, kArrives), Slots::kNone) << "only the last group has room for it";
  EXPECT_EQ(slots.take(2, kArrives), 6u);
  EXPECT_EQ(slots.room(kIsThere), 1u);
  EXPECT_EQ(slots.take(4, kIsThere), 8u);
}

TEST(Slots, LongOnesTakeWholeGroups) {
  Slots slots(17, 4);  // one is left over
  EXPECT_EQ(slots.take(17, kIsThere), Slots::kNone);
  EXPECT_EQ(slots.take(16, kArrives), Slots::kNone) << "one group is kept";
  EXPECT_EQ(slots.take(9, kArrives), 0u);
  EXPECT_EQ(slots.room(kIsThere), 1u);
  EXPECT_EQ(slots.take(3, kArrives), 9u) << "beside its end";
  slots.give(0);
  slots.give(9);
  EXPECT_EQ(slots.take(16, kIsThere), 0u);
  slots.give(0);
  EXPECT_EQ(slots.room(kIsThere), 4u);
}

TEST(Slots, NoneIsNone) {
  Slots slots;
  EXPECT_EQ(slots.room(kIsThere), 0u);
  EXPECT_EQ(slots.room(kArrives), 0u);
  EXPECT_EQ(slots.take(1, kIsThere), Slots::kNone);
}

// No two share a slot, what is told to be free is, and whatever arrives, whole chunks that are
// there find room as soon as those that are there have gone.
TEST(Slots, AtRandom) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    test::Rng rng(seed);
    const auto of_a_chunk = static_cast<uint32_t>(1 + rng.below(5));
    const auto count =
        static_cast<uint32_t>(of_a_chunk * (2 + rng.below(5)) + rng.below(of_a_chunk));
    Slots slots(count, of_a_chunk);
    struct Held {
      uint32_t first, length;
      bool arrives;
    };
    std::vector<Held> held;
    std::vector<bool> used(count);
    const auto give = [&](size_t at) {
      for (uint32_t i = 0; i < held[at].length; ++i) used[held[at].first + i] = false;
      slots.give(held[at].first);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    };
    for (int step = 0; step < 200; ++step) {
      const bool arrives = rng.below(2) == 0;
      const size_t room = slots.room(arrives ? kArrives : kIsThere);
      const auto length = static_cast<uint32_t>(1 + rng.below(of_a_chunk));
      const uint32_t first = slots.take(length, arrives ? kArrives : kIsThere);
      ASSERT_TRUE(first != Slots::kNone || room == 0) << "seed " << seed << ", step " << step;
      if (first != Slots::kNone) {
        held.push_back({first, length, arrives});
        for (uint32_t i = 0; i < length; ++i) {
          ASSERT_LT(first + i, count);
          ASSERT_FALSE(used[first + i]) << "seed " << seed << ", step " << step;
          used[first + i] = true;
        }
      }
      if (!held.empty() && rng.below(3) == 0) give(rng.below(held.size()));
      if (held.empty() || rng.below(4) != 0) continue;
      Held& one = held[rng.below(held.size())];
      slots.has_arrived(one.first);
      one.arrives = false;
    }
    ASSERT_EQ(slots.chunks(), held.size());
    for (size_t at = held.size(); at-- > 0;)
      if (!held[at].arrives) give(at);
    ASSERT_GE(slots.room(kIsThere), 1u) << "seed " << seed;
    ASSERT_NE(slots.take(of_a_chunk, kIsThere), Slots::kNone) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tcpx::gpu
