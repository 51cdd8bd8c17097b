// Several threads inside calls on one transfer: all of them hear of its end when it comes, also
// when one of them releases it.
#include <atomic>
#include <functional>
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
  uint64_t frames_out() {
    uint64_t all = 0;
    const nlohmann::json now = counters(engine_);
    for (auto& lane : now["peers"][0]["lanes"]) all += lane.at("frames_out").get<uint64_t>();
    return all;
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

// Threads inside calls on a transfer that another one releases.
class Released : public Waiters {
 protected:
  // Has `call` called with the transfer in another thread, releases it 50 ms later, and says what
  // the call gave. When the release has returned nobody uses the transfer any more.
  tcpx_code released_during(const std::function<tcpx_code(tcpx_transfer*)>& call) {
    std::atomic<int> code{kInside};
    std::thread caller([&, raw = transfer_.raw()] { code = call(raw); });
    std::this_thread::sleep_for(Ms{50});
    EXPECT_EQ(code, kInside) << "it did not wait for the stopped peer";
    const auto from = Clock::now();
    transfer_.release();
    EXPECT_LT(Clock::now() - from, kFence);
    EXPECT_TRUE(eventually([&] { return code != kInside; }, kAtOnce));
    caller.join();
    return static_cast<tcpx_code>(code.load());
  }
  static constexpr int kInside = -100;
  static constexpr Ms kFence = patience(3'000);  // on net it waits for the plugin, or closes lanes
};

TEST_F(Released, AWaitEnds) {
  target_->program.freeze();
  ASSERT_TRUE(succeeded(transfer_.post()));
  EXPECT_EQ(released_during([](tcpx_transfer* t) { return tcpx_wait(t, kLong.count()); }),
            TCPX_CANCELLED);
  target_->program.thaw();
}

TEST_F(Released, PollsEnd) {
  target_->program.freeze();
  ASSERT_TRUE(succeeded(transfer_.post()));
  tcpx_code code = released_during([](tcpx_transfer* t) {
    tcpx_code now;
    while ((now = tcpx_poll(t)) == TCPX_IN_PROGRESS) {
    }
    return now;
  });
  // The poll that was inside, or the next one.
  EXPECT_TRUE(code == TCPX_CANCELLED || code == TCPX_INVALID_ARGUMENT) << code;
  target_->program.thaw();
}

// It waits for answers of the peer, which a release does not.
TEST_F(Released, ACancelEnds) {
  target_->program.freeze();
  const uint64_t before = frames_out();
  ASSERT_TRUE(succeeded(transfer_.post()));
  // What has not left is taken back, and then there is nothing to wait for.
  ASSERT_TRUE(eventually([&] { return frames_out() > before; }));
  const tcpx_code code =
      released_during([](tcpx_transfer* t) { return tcpx_cancel(t, kLong.count()); });
  // On net its lanes may have been closed, and the session with them.
  EXPECT_TRUE(code == TCPX_CANCELLED || code == TCPX_PEER_TIMEOUT) << code;
  target_->program.thaw();
}

// The same of one that has ended, with chunks that may still land.
TEST_F(Released, ACancelOfWhatIsLooseEnds) {
  if (std::getenv("TCPX_TEST_NET_PLUGIN") != nullptr)
    GTEST_SKIP() << "its lanes are closed with the memory, nothing stays loose";
  target_->program.freeze();
  ASSERT_TRUE(succeeded(transfer_.post(Ms{50})));
  ASSERT_EQ(transfer_.wait(kLong).code(), TCPX_DEADLINE);
  EXPECT_EQ(released_during([](tcpx_transfer* t) { return tcpx_cancel(t, kLong.count()); }),
            TCPX_CANCELLED);
  target_->program.thaw();
}

// Threads that do everything one can do with a transfer, until it is one no longer.
TEST_F(Released, AtAnyMomentOfAnyCall) {
  const tcpx_local_piece mine{mine_.region, 0, 64 << 10};
  const tcpx_remote_piece theirs{&target_->memory, 0, 64 << 10};
  for (int round = 0; round < smaller_if_sanitized(600, 200); ++round) {
    Transfer transfer;
    ASSERT_TRUE(succeeded(engine_.prepare(id_, round % 2 == 0 ? TCPX_WRITE : TCPX_READ, {mine},
                                          {theirs}, &transfer)));
    tcpx_transfer* const raw = transfer.raw();
    ASSERT_TRUE(succeeded(transfer.post()));
    const std::function<tcpx_code()> calls[] = {[&] { return tcpx_wait(raw, kLong.count()); },
                                                [&] { return tcpx_poll(raw); },
                                                [&] { return tcpx_cancel(raw, kLong.count()); },
                                                [&] {
                                                  const tcpx_code code = tcpx_post(raw, nullptr);
                                                  return code == TCPX_BUSY ? TCPX_OK : code;
                                                },
                                                [&] {
                                                  tcpx_receipt receipt{};
                                                  return tcpx_receipt_get(raw, &receipt);
                                                }};
    std::vector<std::thread> threads;
    for (auto& call : calls)
      threads.emplace_back([&] {
        while (call() != TCPX_INVALID_ARGUMENT) {
        }
      });
    std::this_thread::sleep_for(std::chrono::microseconds(round * 7 % 500));
    transfer.release();
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(counter(engine_, "transfers_posted"),
            counter(engine_, "transfers_done") + counter(engine_, "transfers_failed"));
}

}  // namespace
}  // namespace tcpx::test
