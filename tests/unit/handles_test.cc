#include "capi/handles.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace tcpx {
namespace {

struct Counted {
  explicit Counted(std::atomic<int>& count) : alive(count) { ++alive; }
  ~Counted() { --alive; }
  std::atomic<int>& alive;
};

TEST(Handles, AreFoundUntilTheyAreTaken) {
  std::atomic<int> alive{0};
  Handles<Counted> handles;
  EXPECT_EQ(handles.find(0), nullptr);
  uint64_t handle = handles.add(std::make_unique<Counted>(alive));
  EXPECT_NE(handle, 0u);
  EXPECT_NE(handles.find(handle), nullptr);
  EXPECT_NE(handles.take(handle), nullptr);
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(handles.find(handle), nullptr);
  EXPECT_EQ(handles.take(handle), nullptr) << "a second time";
  EXPECT_EQ(handles.take(handle + 1), nullptr);
  EXPECT_EQ(handles.find(UINT64_MAX), nullptr);
}

TEST(Handles, AreNeverGivenTwiceAndSlotsAreUsedAgain) {
  std::atomic<int> alive{0};
  Handles<Counted> handles;
  std::set<uint64_t> seen;
  for (int i = 0; i < 10'000; ++i) {
    uint64_t handle = handles.add(std::make_unique<Counted>(alive));
    EXPECT_TRUE(seen.insert(handle).second);
    EXPECT_EQ(handle & 0xffffff, 0u) << "the only slot";
    EXPECT_NE(handles.take(handle), nullptr);
  }
}

TEST(Handles, MoreThanABlock) {
  std::atomic<int> alive{0};
  Handles<Counted> handles;
  std::vector<uint64_t> all;
  for (int i = 0; i < 5000; ++i) all.push_back(handles.add(std::make_unique<Counted>(alive)));
  EXPECT_EQ(alive, 5000);
  for (uint64_t handle : all) EXPECT_NE(handles.take(handle), nullptr);
  EXPECT_EQ(alive, 0);
}

// Threads that make and release, each handle twice and by two of them: one gets it.
TEST(Handles, OfManyThreads) {
  std::atomic<int> alive{0}, taken{0};
  std::atomic<uint64_t> shared{0};
  Handles<Counted> handles;
  constexpr int kThreads = 4, kRounds = 20'000;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        uint64_t mine = handles.add(std::make_unique<Counted>(alive));
        uint64_t other = shared.exchange(mine);
        taken += handles.take(other) != nullptr;
        taken += handles.take(i % 3 == 0 ? mine : other) != nullptr;
      }
    });
  for (auto& thread : threads) thread.join();
  taken += handles.take(shared) != nullptr;
  EXPECT_EQ(taken, kThreads * kRounds);
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace tcpx
