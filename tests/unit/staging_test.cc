// What receipts say of chunks between memory and slots: times by the wall clock.
#include "engine/staging.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tcpx {
namespace {

TEST(WallTime, CountsWhatSpansCoverTogether) {
  WallTime time;
  EXPECT_EQ(time.sum(), 0);
  time.add(100, 200);
  time.add(100, 200);
  time.add(150, 250);
  EXPECT_EQ(time.sum(), 150);
  time.add(300, 310);
  EXPECT_EQ(time.sum(), 160);
  time.add(5, 5);
  time.add(0, 0);
  EXPECT_EQ(time.sum(), 160) << "what took no time";
}

// One loop looks at its move when another one has told of a later move.
TEST(WallTime, CountsWhatIsToldLate) {
  WallTime time;
  time.add(2'000, 2'010);
  time.add(1'000, 1'900);
  EXPECT_EQ(time.sum(), 910);
  time.add(1'950, 2'005);
  EXPECT_EQ(time.sum(), 960);
  time.add(0, 2'010);
  EXPECT_EQ(time.sum(), 1'010 - 900 + 900 + 0) << "from the last gap on";
}

TEST(WallTime, IsNeverMoreThanTheTruthAndExactForWhatEndsInOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const bool in_order = round % 2 == 0;
    std::vector<std::pair<Nanos, Nanos>> spans;
    for (int i = 0; i < 20; ++i) {
      const Nanos from = 1 + random() % 300;
      spans.emplace_back(from, from + 1 + random() % 30);
    }
    // As of one queue: begun in order, over in order.
    if (in_order) std::sort(spans.begin(), spans.end());
    for (size_t i = 1; in_order && i < spans.size(); ++i)
      spans[i].second = std::max(spans[i].second, spans[i - 1].second);
    WallTime time;
    std::set<Nanos> covered;
    for (auto [from, until] : spans) {
      time.add(from, until);
      for (Nanos at = from; at < until; ++at) covered.insert(at);
    }
    const auto truth = static_cast<Nanos>(covered.size());
    EXPECT_LE(time.sum(), truth);
    if (in_order) {
      EXPECT_EQ(time.sum(), truth);
    }
  }
}

TEST(SlotWait, IsTheTimeInWhichAnybodyWaits) {
  SlotWait wait;
  EXPECT_EQ(wait.sum(1'000), 0);
  wait.wanted_by(0, 1'000);
  EXPECT_EQ(wait.sum(1'040), 40) << "also while it goes on";
  wait.wanted_by(3, 1'050);
  wait.one_more_without(1'060);
  wait.not_wanted_by(0, 1'100);
  wait.not_wanted_by(3, 1'200);
  wait.one_less_without(1'300);
  EXPECT_EQ(wait.sum(9'999), 300);
  wait.not_wanted_by(3, 1'400);
  EXPECT_EQ(wait.sum(9'999), 300) << "who did not wait ends nothing";
  wait.wanted_by(1, 2'000);
  wait.wanted_by(2, 2'000);
  EXPECT_TRUE(wait.wanted());
  wait.not_wanted(2'050);
  EXPECT_FALSE(wait.wanted());
  EXPECT_EQ(wait.sum(9'999), 350);
  wait.wanted_by(1, 3'000);
  wait.one_more_without(3'000);
  wait.stop(3'100);
  EXPECT_EQ(wait.sum(9'999), 450);
}

// A lane tells of a chunk's slot when its move is over, others meanwhile that they wait no more.
TEST(SlotWait, LastsAsLongAsWhoWaitedLongest) {
  SlotWait wait;
  wait.one_more_without(1'000);
  wait.one_more_without(1'010);
  wait.one_less_without(1'500);
  wait.one_less_without(1'100);
  EXPECT_EQ(wait.sum(9'999), 500);
  wait.one_more_without(2'000);
  wait.one_less_without(2'010);
  EXPECT_EQ(wait.sum(9'999), 510);
}

TEST(Staging, AddsUpWhatMovesTook) {
  Staging staging;
  MoveEnd good;
  good.copies = 3;
  good.begun = 100, good.submitted = 120, good.over = 200;
  staging.add(good, 512);
  MoveEnd failed = good;
  failed.why = "the test said so";
  failed.kernels = 1, failed.lacked_kernel = true;
  staging.add(failed, 512);
  MoveEnd refused;
  refused.why = "lost";
  refused.begun = 300, refused.over = 350;
  staging.add(refused, 512);
  EXPECT_EQ(staging.bytes, 512u);
  EXPECT_EQ(staging.copies, 6u);
  EXPECT_EQ(staging.kernels, 1u);
  EXPECT_EQ(staging.kernels_missing, 1u);
  EXPECT_EQ(staging.submitting.sum(), 70) << "what was never submitted waited to its end";
  EXPECT_EQ(staging.moving.sum(), 80);
}

}  // namespace
}  // namespace tcpx
