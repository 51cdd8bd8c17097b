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
  EXPECT_FALSE(handles.use(0));
  uint64_t handle = handles.add(std::make_unique<Counted>(alive));
  EXPECT_NE(handle, 0u);
  EXPECT_TRUE(handles.use(handle));
  EXPECT_TRUE(handles.retire(handle));
  EXPECT_EQ(alive, 0);
  EXPECT_FALSE(handles.use(handle));
  EXPECT_FALSE(handles.retire(handle)) << "a second time";
  EXPECT_FALSE(handles.retire(handle + 1));
  EXPECT_FALSE(handles.use(UINT64_MAX));
}

TEST(Handles, AreNeverGivenTwiceAndSlotsAreUsedAgain) {
  std::atomic<int> alive{0};
  Handles<Counted> handles;
  std::set<uint64_t> seen;
  for (int i = 0; i < 10'000; ++i) {
    uint64_t handle = handles.add(std::make_unique<Counted>(alive));
    EXPECT_TRUE(seen.insert(handle).second);
    EXPECT_EQ(handle & 0xffffff, 0u) << "the only slot";
    EXPECT_TRUE(handles.retire(handle));
  }
}

TEST(Handles, MoreThanABlock) {
  std::atomic<int> alive{0};
  Handles<Counted> handles;
  std::vector<uint64_t> all;
  for (int i = 0; i < 5000; ++i) all.push_back(handles.add(std::make_unique<Counted>(alive)));
  EXPECT_EQ(alive, 5000);
  for (uint64_t handle : all) EXPECT_TRUE(handles.retire(handle));
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
        taken += static_cast<bool>(handles.retire(other));
        taken += static_cast<bool>(handles.retire(i % 3 == 0 ? mine : other));
      }
    });
  for (auto& thread : threads) thread.join();
  taken += static_cast<bool>(handles.retire(shared));
  EXPECT_EQ(taken, kThreads * kRounds);
  EXPECT_EQ(alive, 0);
}

// Nobody else finds it any more, and it goes when the last one who uses it has left.
TEST(Handles, WhatIsInUseIsWaitedFor) {
  std::atomic<int> alive{0};
  Handles<Counted> handles;
  uint64_t handle = handles.add(std::make_unique<Counted>(alive));
  std::atomic<bool> gone{false};
  std::thread taker;
  {
    Handles<Counted>::Use one = handles.use(handle), two = handles.use(handle);
    ASSERT_TRUE(one && two);
    taker = std::thread([&] {
      EXPECT_TRUE(handles.retire(handle));
      gone = true;
    });
    while (handles.use(handle)) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(gone);
    EXPECT_EQ(alive, 1);
    EXPECT_FALSE(handles.retire(handle)) << "one of several gets it";
    const uint64_t other = handles.add(std::make_unique<Counted>(alive));
    EXPECT_NE(other & 0xffffff, handle & 0xffffff) << "its slot is in use";
    EXPECT_TRUE(handles.retire(other));
  }
  taker.join();
  EXPECT_EQ(alive, 0);
}

// Threads that use what others release: it is there as long as it is used.
TEST(Handles, ManyUseWhatIsReleased) {
  std::atomic<int> alive{0};
  std::atomic<uint64_t> shared{0};
  std::atomic<bool> stop{false};
  std::atomic<int> used{0};
  Handles<Counted> handles;
  std::vector<std::thread> users;
  for (int t = 0; t < 3; ++t)
    users.emplace_back([&] {
      while (!stop)
        if (auto use = handles.use(shared)) {
          EXPECT_GT(use->alive, 0);
          ++used;
        }
    });
  for (int i = 0; i < 2000 || used < 200; ++i) {
    uint64_t handle = handles.add(std::make_unique<Counted>(alive));
    shared = handle;
    if (i % 16 == 0) std::this_thread::yield();
    EXPECT_TRUE(handles.retire(handle));
  }
  stop = true;
  for (auto& user : users) user.join();
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace tcpx
