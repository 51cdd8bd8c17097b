#include "path/loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace tcpx {
namespace {

// Counts what it is told; reads its socket dry on events.
struct Counter final : LoopSource {
  explicit Counter(int socket) : fd(socket) {}
  void on_events(uint32_t) override {
    char buffer[256];
    ssize_t got;
    while ((got = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
      if (std::this_thread::get_id() == tester) received_by_tester += got;
      received += got;
    }
  }
  bool on_spin() override {
    long before = received;
    on_events(0);
    ++spins;
    return received != before;
  }
  void on_wake() override { ++wakes; }
  Work on_hot() override { return --hot > 0 ? Work::kMore : Work::kNone; }
  int fd;
  const std::thread::id tester = std::this_thread::get_id();
  std::atomic<long> received_by_tester{0};
  std::atomic<long> received{0};
  std::atomic<int> wakes{0};
  std::atomic<int> hot{0};
  std::atomic<int> spins{0};
};

struct LoopTest : ::testing::Test {
  void SetUp() override {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    inside.reset(pair[0]);
    outside.reset(pair[1]);
    source = std::make_shared<Counter>(inside.get());
    ASSERT_TRUE(Loop::create({}, &loop).ok());
    loop->run_exclusive([&] { ASSERT_TRUE(loop->add(inside.get(), source, &index).ok()); });
  }
  void TearDown() override {
    loop->run_exclusive([&] { loop->remove(index, inside.get()); });
    loop.reset();
  }
  // As tcpx_wait does, and a tcpx_poll that only looks.
  bool drive(const std::function<bool()>& stop, Nanos until) {
    return loop->drive(stop, until, Loop::Caller::kWaits);
  }
  bool look() {
    return loop->drive([] { return false; }, 0, Loop::Caller::kPolls);
  }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }
  Fd inside, outside;
  std::unique_ptr<Loop> loop;
  std::shared_ptr<Counter> source;
  uint32_t index = 0;
};

TEST_F(LoopTest, TheThreadServesEventsWithoutAnyCaller) {
  for (int i = 1; i <= 50; ++i) {
    ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
    ASSERT_TRUE(eventually([&] { return source->received == i; })) << i;
    std::this_thread::sleep_for(std::chrono::microseconds(i * 20));  // also into its sleep
  }
}

TEST_F(LoopTest, ACallerDrivesAndTheThreadTakesOverAfter) {
  for (int round = 0; round < 200; ++round) {
    long before = source->received;
    ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
    drive([&] { return source->received > before; }, now_ns() + 5 * kSecond);
    // It returns at once when the loop's thread is quicker; the byte is served all the same.
    ASSERT_TRUE(eventually([&] { return source->received > before; }));
    ASSERT_EQ(send(outside.get(), "y", 1, 0), 1);
    ASSERT_TRUE(eventually([&] { return source->received == before + 2; })) << "round " << round;
  }
}

// The source that was heard last is asked directly; the others, the wake and the end of what is
// waited for are not missed for it.
TEST_F(LoopTest, AskingOneSourceDirectlyMissesNothingOfTheOthers) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  Fd other_inside(pair[0]), other_outside(pair[1]);
  auto other = std::make_shared<Counter>(other_inside.get());
  uint32_t other_index = 0;
  loop->run_exclusive([&] {
    ASSERT_TRUE(loop->add(other_inside.get(), other, &other_index).ok());
    loop->heard(index, now_ns());
    loop->engage(1);  // spin long
  });
  for (int round = 1; round <= 100; ++round) {
    ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
    ASSERT_EQ(send(other_outside.get(), "y", 1, 0), 1);
    loop->wake(other_index);
    drive([&] { return source->received == round && other->received == round; },
          now_ns() + 5 * kSecond);
    ASSERT_TRUE(eventually([&] {
      return source->received == round && other->received == round && other->wakes >= 1;
    })) << "round "
        << round;
  }
  // Quiet for a while: there is spinning to be seen.
  EXPECT_TRUE(eventually([&] {
    drive([] { return false; }, now_ns() + 5 * kMilli);
    return source->spins > 0;
  }));
  EXPECT_EQ(other->spins, 0);
  // Once it is gone nobody asks it.
  int asked = 0;
  loop->run_exclusive([&] {
    loop->engage(-1);
    loop->remove(other_index, other_inside.get());
    loop->heard(index, now_ns());
    loop->remove(index, inside.get());
    asked = source->spins;
  });
  drive([] { return false; }, now_ns() + 5 * kMilli);
  EXPECT_EQ(source->spins, asked);
  loop->run_exclusive([&] { ASSERT_TRUE(loop->add(inside.get(), source, &index).ok()); });
}

// Who waits for room hears of it from epoll alone, so nobody is asked directly meanwhile.
TEST_F(LoopTest, NobodyIsAskedDirectlyWhileASourceWaitsForRoom) {
  loop->run_exclusive([&] {
    loop->heard(index, now_ns());
    loop->engage(1);
    loop->watch_room(index, inside.get(), true);
  });
  int before = source->spins;
  drive([] { return false; }, now_ns() + 5 * kMilli);
  EXPECT_EQ(source->spins, before);
  loop->run_exclusive([&] { loop->watch_room(index, inside.get(), false); });
  // The loop's thread may have it and not be running: then there is nothing to drive this time.
  EXPECT_TRUE(eventually([&] {
    loop->run_exclusive([&] { loop->heard(index, now_ns()); });
    drive([] { return false; }, now_ns() + 5 * kMilli);
    return source->spins > before;
  }));
  loop->run_exclusive([&] { loop->engage(-1); });
}

TEST_F(LoopTest, ADriverStaysUntilTheEndOrTheTime) {
  for (auto caller : {Loop::Caller::kWaits, Loop::Caller::kPolls}) {
    long before = source->received;
    std::thread sender([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(send(outside.get(), "x", 1, 0), 1);
    });
    auto came = [&] { return source->received > before; };
    Nanos from = now_ns();
    while (!came()) loop->drive(came, now_ns() + 5 * kSecond, caller);
    EXPECT_LT(now_ns() - from, 4 * kSecond) << "it stayed although the end had come";
    sender.join();
    from = now_ns();
    loop->drive([] { return false; }, from + 3 * kMilli, caller);
    EXPECT_LT(now_ns() - from, 2 * kSecond);
  }
}

// Nor does it wait for the loop: its caller has something better to do than that.
TEST_F(LoopTest, ADriverSaysWhenAnotherDrives) {
  for (auto caller : {Loop::Caller::kWaits, Loop::Caller::kPolls}) {
    bool drove = true;
    loop->run_exclusive([&] {
      std::thread([&] {
        drove = loop->drive([] { return false; }, now_ns() + 60 * kSecond, caller);
      }).join();
    });
    EXPECT_FALSE(drove);
  }
  EXPECT_TRUE(
      eventually([&] { return loop->drive([] { return true; }, now_ns(), Loop::Caller::kPolls); }));
}

TEST_F(LoopTest, WakesAreNeverLostWhoeverDrives) {
  std::atomic<bool> stop{false};
  std::thread driver([&] {
    while (!stop) drive([&] { return stop.load(); }, now_ns() + 2 * kMilli);
  });
  for (int i = 0; i < 300; ++i) {
    int before = source->wakes;
    loop->wake(index);
    ASSERT_TRUE(eventually([&] { return source->wakes > before; })) << i;
  }
  stop = true;
  loop->nudge();
  driver.join();
}

TEST_F(LoopTest, ExclusiveSectionsNeverOverlapAndAlwaysRun) {
  std::atomic<bool> stop{false};
  int inside_now = 0, ran = 0;  // unguarded on purpose: the section is the guard
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    while (!stop) drive([&] { return stop.load(); }, now_ns() + kMilli);
  });
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i)
        loop->run_exclusive([&] {
          ASSERT_EQ(inside_now++, 0);
          ++ran;
          --inside_now;
        });
    });
  for (size_t t = 1; t < threads.size(); ++t) threads[t].join();
  stop = true;
  loop->nudge();
  threads[0].join();
  loop->run_exclusive([&] { EXPECT_EQ(ran, 900); });
}

TEST_F(LoopTest, ASleepingDriverIsNudgedWhenItsConditionComesTrue) {
  std::atomic<bool> done{false};
  std::thread finisher([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    done = true;
    loop->nudge();
  });
  Nanos start = now_ns();
  drive([&] { return done.load(); }, now_ns() + 30 * kSecond);
  EXPECT_LT(now_ns() - start, 5 * kSecond);
  finisher.join();
}

// Polls that follow closely keep the thread asleep. It must be back when they stop, at whatever
// moment.
TEST_F(LoopTest, TheThreadTakesOverFromAPollerThatStops) {
  for (int round = 0; round < 300; ++round) {
    long before = source->received;
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
      look();
    }
    Nanos until = now_ns() + 5 * round * kMicro;  // the thread's looks at the lease fall anywhere
    while (now_ns() < until) look();
    ASSERT_EQ(send(outside.get(), "y", 1, 0), 1);
    ASSERT_TRUE(eventually([&] { return source->received == before + 21; })) << "round " << round;
    loop->wake(index);
    ASSERT_TRUE(eventually([&] { return source->wakes == round + 1; })) << "round " << round;
  }
}

TEST_F(LoopTest, PollersAndDriversAndTheThreadMissNothing) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i)
    callers.emplace_back([&] {
      while (!stop) look();
    });
  callers.emplace_back([&] {
    while (!stop) {
      drive([&] { return stop.load(); }, now_ns() + 300 * kMicro);
      std::this_thread::sleep_for(std::chrono::microseconds(700));
    }
  });
  for (int i = 1; i <= 500; ++i) {
    ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
    loop->wake(index);
    loop->run_exclusive([] {});
    ASSERT_TRUE(eventually([&] { return source->received == i && source->wakes > 0; })) << i;
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
  ASSERT_TRUE(eventually([&] { return source->received == 501; })) << "nobody calls any more";
}

// Whoever posts and polls leaves something behind and comes no more: the thread has it.
TEST_F(LoopTest, TheThreadComesBackAfterALongSectionUnderALease) {
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 20; ++i) look();
    source->hot = 5000;
    bool done = false;
    while (!done) done = loop->try_exclusive([&] { loop->make_hot(index); }, Loop::Length::kLong);
    ASSERT_TRUE(eventually([&] { return source->hot <= 0; })) << "round " << round;
  }
}

// At whatever moment the last poll was, the thread is there when the lease has ended, of its own
// accord. The least of many: this machine may have other things to do.
TEST_F(LoopTest, AfterTheLastPollTheThreadIsSoonThere) {
  Nanos least = kNever;
  for (int round = 0; round < 100; ++round) {
    long before = source->received;
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
      look();
    }
    ASSERT_EQ(send(outside.get(), "y", 1, 0), 1);
    Nanos from = now_ns();
    while (source->received != before + 21 && now_ns() < from + 5 * kSecond) pause_cpu();
    ASSERT_EQ(source->received, before + 21) << "round " << round;
    least = std::min(least, now_ns() - from);
  }
  EXPECT_LT(least, kMilli) << "a lease lasts " << tuning::kLeaseLasts;
}

// While a lease goes on the thread only looks at it: what comes between two polls waits for the
// next one. A poll counts if there was a lease from its byte to its end, whatever else this machine
// had to do: two polls within kPollsClose begin it, and it goes on if the next one is over within
// kLeaseLasts of the beginning of the one before.
TEST_F(LoopTest, APollerWhoComesBackSoonIsLeftAlone) {
  bool leased = false, drove_before = false;
  int counted = 0, served_by_others = 0;
  Nanos came_before = now_ns();
  for (Nanos give_up = came_before + 20 * kSecond; counted < 500 && came_before < give_up;) {
    long before = source->received, mine = source->received_by_tester;
    ASSERT_EQ(send(outside.get(), "x", 1, 0), 1);
    relax((leased ? 30 : 10) * kMicro);
    Nanos came = now_ns();
    bool drove = look(), served = source->received > before;
    Nanos took = now_ns() - came_before;
    leased = leased && took < tuning::kLeaseLasts;
    if (leased && served) {  // not yet: the thread was looking at the lease in that moment
      ++counted;
      served_by_others += source->received_by_tester == mine;
    }
    leased = drove && (leased || (drove_before && took < tuning::kPollsClose));
    ASSERT_TRUE(eventually([&] { return source->received > before; }));
    drove_before = drove;
    came_before = came;
  }
  EXPECT_GT(counted, 0);
  EXPECT_EQ(served_by_others, 0) << "of " << counted;
}

// Nobody may spin: the driver sleeps as soon as it has found nothing.
TEST(LoopDrivers, WhoMayNotSpinSleeps) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  Fd inside(pair[0]), outside(pair[1]);
  Drivers drivers;
  Loop::Settings settings;
  settings.spin = kSecond;
  settings.drivers = &drivers;
  std::unique_ptr<Loop> loop;
  ASSERT_TRUE(Loop::create(settings, &loop).ok());
  auto source = std::make_shared<Counter>(inside.get());
  uint32_t index = 0;
  loop->run_exclusive([&] { ASSERT_TRUE(loop->add(inside.get(), source, &index).ok()); });
  for (int most : {0, 1}) {
    drivers.spin_up_to(most);
    loop->run_exclusive([&] { loop->heard(index, now_ns()); });
    bool slept = true;
    // Whose core was taken meanwhile sleeps, too: it is tried again.
    for (int tries = 0; slept && tries < (most == 0 ? 1 : 50); ++tries) {
      source->spins = 0;
      uint64_t sleeps = loop->sleeps();
      while (!loop->drive([] { return false; }, now_ns() + 3 * kMilli, Loop::Caller::kWaits)) {
      }
      slept = loop->sleeps() > sleeps;
    }
    EXPECT_EQ(slept, most == 0);
    if (most == 0) {
      EXPECT_LT(source->spins, 10);
    }
  }
  loop->run_exclusive([&] { loop->remove(index, inside.get()); });
}

TEST_F(LoopTest, StopEndsALeaseSoon) {
  for (int i = 0; i < 100; ++i) look();
  Nanos from = now_ns();
  ASSERT_TRUE(loop->stop());
  EXPECT_LT(now_ns() - from, kSecond);
}

// A peer ends while one of its lanes is still being made: both stop the lane's loop, both have
// commands for it. The counter has no lock but the loop's.
TEST(LoopEnd, CommandsAroundTheStopAllRunAndNeverOverlap) {
  for (int round = 0; round < 200; ++round) {
    Loop::Settings settings;
    settings.own_thread_only = round % 2 == 0;
    std::unique_ptr<Loop> loop;
    ASSERT_TRUE(Loop::create(settings, &loop).ok());
    int ran = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        for (int k = 0; k < 10; ++k) {
          if (k == 5 && i % 2 == 0) {
            EXPECT_TRUE(loop->stop());
          }
          EXPECT_TRUE(loop->run_exclusive([&] { ++ran; }));
        }
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(ran, 40);
  }
}

// Spends all it may, every time, as a flooding peer's lane does.
struct Busy final : LoopSource {
  Busy(Loop& of, std::vector<int>& into, int me) : loop(of), order(into), name(me) {}
  void on_events(uint32_t) override {}
  void on_wake() override {}
  Work on_hot() override {
    order.push_back(name);
    loop.spend(index, loop.turn_left(index));
    return order.size() < 600 ? Work::kMore : Work::kNone;
  }
  Loop& loop;
  std::vector<int>& order;
  const int name;
  uint32_t index = 0;
};

// One owner with many sources gets no more turns than one with a single source, and each of the
// many gets as many as the others.
TEST_F(LoopTest, OwnersTakeTurnsHoweverManySourcesTheyHave) {
  constexpr int kMany = 8;
  std::vector<int> order;
  std::vector<std::shared_ptr<Busy>> all;
  std::vector<Fd> fds;
  loop->run_exclusive([&] {
    for (int i = 0; i <= kMany; ++i) {
      fds.emplace_back(dup(inside.get()));
      all.push_back(std::make_shared<Busy>(*loop, order, i));
      uint64_t owner = i < kMany ? 1 : 2;
      ASSERT_TRUE(loop->add(fds.back().get(), all.back(), &all.back()->index, owner).ok());
      loop->make_hot(all.back()->index);
    }
  });
  // Whoever drives: this thread may find the loop's own at work.
  auto have = [&] {
    size_t size = 0;
    loop->run_exclusive([&] { size = order.size(); });
    return size;
  };
  ASSERT_TRUE(eventually([&] { return have() >= 600; }));
  loop->run_exclusive([&] {
    for (int i = 0; i <= kMany; ++i)
      loop->remove(all[static_cast<size_t>(i)]->index, fds[static_cast<size_t>(i)].get());
  });
  std::vector<int> turns(kMany + 1);
  for (size_t i = 0; i < 600; ++i) ++turns[static_cast<size_t>(order[i])];
  EXPECT_NEAR(turns[kMany], 300, 10) << "the owner of one";
  for (int i = 0; i < kMany; ++i) EXPECT_NEAR(turns[static_cast<size_t>(i)], 300 / kMany, 5) << i;
}

#if defined(TCPX_CHECKS)
TEST_F(LoopTest, WhoIsNotInsideIsCaught) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  loop->run_exclusive([&] { loop->assert_inside(); });
  loop->try_exclusive([&] { loop->assert_inside(); });
  EXPECT_DEATH(loop->assert_inside(), "");
  EXPECT_DEATH(loop->make_hot(index), "");
  EXPECT_DEATH(loop->run_exclusive([&] { std::thread([&] { loop->engage(1); }).join(); }), "");
}
#endif

TEST_F(LoopTest, HotSourcesArePolledUntilTheySayNo) {
  source->hot = 1000;
  loop->run_exclusive([&] { loop->make_hot(index); });
  EXPECT_TRUE(eventually([&] { return source->hot <= 0; }));
}

}  // namespace
}  // namespace tcpx
