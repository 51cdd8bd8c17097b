// Several threads that wait for one transfer: all of them hear of its end when it comes.
#include <thread>

#include "cut_lanes.h"
#include "fault_fixture.h"

namespace tcpx::test {
namespace {

class Waiters : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 8 << 20;
  static constexpr Ms kAtOnce = patience(400);  // a waiter that is not told looks once a second

  void SetUp() override {
    options_ = fault_options({{"lanes", "2"},
                              {"io_threads", "2"},
                              {"deadline", "60s"},
                              {"lane_timeout", "30s"},
                              {"peer_timeout", "40s"}});
    target_ = std::make_unique<ProcessTarget>(kBytes, options_);
    engine_ = make_engine(options_);
    mine_ = make_local(engine_, kBytes, 0, 1);
    ASSERT_TRUE(succeeded(engine_.connect(target_->program.info(), &id_)));
    ASSERT_TRUE(succeeded(engine_.peer_wait(id_, kLong)));
    ASSERT_TRUE(succeeded(engine_.prepare(id_, TCPX_WRITE, {{mine_.region, 0, kBytes}},
                                          {{&target_->memory, 0, kBytes}}, &transfer_)));
  }
  void TearDown() override {
    transfer_.release();
    engine_.destroy();
  }
  std::thread waiter(Clock::time_point* back) {
    return std::thread([this, back] {
      (void)tcpx_wait(transfer_.raw(), kLong.count());
      *back = Clock::now();
    });
  }

  Options options_;
  std::unique_ptr<ProcessTarget> target_;
  Local mine_;
  Engine engine_;
  tcpx_peer id_ = 0;
  Transfer transfer_;
};

// The first one waits in the loop of a lane that is lost meanwhile, the second in another's.
TEST_F(Waiters, InDifferentLoopsHearOfTheEnd) {
  if (std::getenv("TCPX_TEST_NET_PLUGIN") != nullptr)
    GTEST_SKIP() << "lanes with a thread of their own are not waited in";
  Clock::time_point first_back, second_back;
  target_->program.freeze();
  ASSERT_TRUE(succeeded(transfer_.post()));
  std::thread first = waiter(&first_back);
  std::this_thread::sleep_for(Ms{100});  // it is asleep
  ASSERT_NO_FATAL_FAILURE(cut_lanes(1));
  EXPECT_TRUE(eventually([&] { return counter(engine_, "lanes_lost") == 1; }));
  std::thread second = waiter(&second_back);
  std::this_thread::sleep_for(Ms{100});
  target_->program.thaw();
  EXPECT_TRUE(eventually([&] { return !transfer_.poll().in_progress(); }));
  auto ended = Clock::now();
  first.join();
  second.join();
  EXPECT_TRUE(succeeded(transfer_.poll())) << transfer_.error();
  EXPECT_LT(first_back - ended, kAtOnce);
  EXPECT_LT(second_back - ended, kAtOnce);
}

// Eight of them, over many posts.
TEST_F(Waiters, ManyOfThemHearOfTheEnd) {
  for (int round = 0; round < smaller_if_sanitized(50, 10); ++round) {
    ASSERT_TRUE(succeeded(transfer_.post()));
    std::vector<Clock::time_point> back(8);
    std::vector<std::thread> threads;
    for (auto& each : back) threads.push_back(waiter(&each));
    EXPECT_TRUE(succeeded(transfer_.wait(kLong)));
    auto ended = Clock::now();
    for (std::thread& thread : threads) thread.join();
    for (auto& each : back) EXPECT_LT(each - ended, kAtOnce);
  }
}

}  // namespace
}  // namespace tcpx::test
