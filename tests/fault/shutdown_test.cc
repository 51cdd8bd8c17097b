// Destroying an engine with peers connected and transfers running, whatever state they are in.
#include "fault_fixture.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = smaller_if_sanitized<uint64_t>(512 << 20, 128 << 20);

struct Running {
  Local local;
  tcpx_remote_region remote{};
  tcpx_peer peer = 0;
  std::vector<Transfer> transfers;

  void start(Engine& engine, Peer& victim) {
    remote = victim.memory("m", kBytes, kReadWrite, 0, "sparse");
    local = make_local(engine, kBytes, 0, 0, "sparse");
    ASSERT_TRUE(succeeded(engine.connect(victim.info(), &peer)));
    ASSERT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
      Transfer transfer;
      ASSERT_TRUE(succeeded(engine.prepare(peer, op, {{local.region, 0, kBytes}},
                                           {{&remote, 0, kBytes}}, &transfer)));
      ASSERT_TRUE(succeeded(transfer.post(Ms{60'000})));
      transfers.push_back(std::move(transfer));
    }
    std::this_thread::sleep_for(Ms{10});
  }
  // Posts those again that are over. False: there was none.
  bool post_what_is_over() {
    bool any = false;
    for (Transfer& transfer : transfers) {
      Result result = transfer.poll();
      if (result.in_progress()) continue;
      any = true;
      EXPECT_TRUE(succeeded(result)) << transfer.error();
      EXPECT_TRUE(succeeded(transfer.post(Ms{60'000})));
    }
    return any;
  }
  // Comes back when both are under way at the same time.
  void keep_running() {
    for (int attempt = 0; attempt < kAttempts; ++attempt)
      if (!post_what_is_over()) return;
    FAIL() << "not one of " << kAttempts << " pairs of transfers was still under way";
  }
  // The same with a peer that has been stopped.
  void freeze_midway(Peer& victim) {
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      victim.freeze();
      if (!post_what_is_over()) return;
      victim.thaw();
      std::this_thread::sleep_for(Ms{10});
    }
    FAIL() << "not one of " << kAttempts << " pairs of transfers was still under way";
  }
  // How they ended by the end of the engine. *met: none of them was done just before it.
  void expect_ended(bool* met) {
    *met = true;
    for (Transfer& transfer : transfers) {
      tcpx_code code = transfer.poll().code();
      *met &= code != TCPX_OK;
      EXPECT_TRUE(code == TCPX_SHUTDOWN || code == TCPX_CANCELLED || code == TCPX_OK)
          << tcpx_code_name(code);
    }
  }
};

void destroy_while_transfers_run(bool* met) {
  Peer victim;
  victim.create(fault_options());
  Running running;
  Engine engine = make_engine(fault_options());
  ASSERT_NO_FATAL_FAILURE(running.start(engine, victim));
  std::string us = victim("accept {}", patience(5'000).count());
  ASSERT_NO_FATAL_FAILURE(running.keep_running());
  Stopwatch watch;
  engine.destroy();
  EXPECT_LT(watch.elapsed(), patience(2'000));
  running.expect_ended(met);
  EXPECT_TRUE(eventually([&] { return std::stoi(victim("peer_info {}", us)) == TCPX_PEER_CLOSED; },
                         kNoticed))
      << victim("peer_info {}", us);
}
TEST(Shutdown, WhileTransfersRunEndsThemAndThePeerIsTold) {
  Holdings before;
  until_under_way(destroy_while_transfers_run);
  EXPECT_TRUE(before.restored()) << before.now();
}

void destroy_with_a_stopped_peer(bool* met) {
  Peer victim;
  victim.create(fault_options());
  Running running;
  Engine engine = make_engine(fault_options({{"peer_timeout", "60s"}, {"deadline", "60s"}}));
  ASSERT_NO_FATAL_FAILURE(running.start(engine, victim));
  ASSERT_NO_FATAL_FAILURE(running.freeze_midway(victim));
  Stopwatch watch;
  engine.destroy();
  EXPECT_LT(watch.elapsed(), patience(3'000));
  running.expect_ended(met);
  victim.thaw();
}
TEST(Shutdown, WithAStoppedPeerReturnsInBoundedTime) {
  Holdings before;
  until_under_way(destroy_with_a_stopped_peer);
  EXPECT_TRUE(before.restored()) << before.now();
}

TEST(Shutdown, WithAKilledPeerAndOneThatNeverAnsweredReturnsInBoundedTime) {
  Holdings before;
  {
    Peer victim, silent;
    victim.create(fault_options());
    silent.create(fault_options());
    Bytes silent_info = silent.info();
    silent.freeze();
    Running running;
    Engine engine =
        make_engine(fault_options({{"connect_timeout", "60s"}, {"handshake_timeout", "60s"}}));
    running.start(engine, victim);
    tcpx_peer never = 0;
    ASSERT_TRUE(succeeded(engine.connect(silent_info, &never)));
    victim.kill();
    Stopwatch watch;
    engine.destroy();
    EXPECT_LT(watch.elapsed(), patience(3'000));
    for (Transfer& transfer : running.transfers) EXPECT_FALSE(transfer.poll().in_progress());
  }
  EXPECT_TRUE(before.restored()) << before.now();
}

void destroy_while_threads_wait(bool* met) {
  Peer victim;
  victim.create(fault_options());
  Running running;
  Engine engine = make_engine(fault_options({{"peer_timeout", "60s"}}));
  ASSERT_NO_FATAL_FAILURE(running.start(engine, victim));
  ASSERT_NO_FATAL_FAILURE(running.freeze_midway(victim));
  std::vector<std::thread> waiters;
  std::atomic<int> waiting{0}, ended{0}, over{0};
  for (Transfer& transfer : running.transfers)
    waiters.emplace_back([&] {
      ++waiting;
      tcpx_code code = transfer.wait(Ms{50'000}).code();
      if (code == TCPX_SHUTDOWN || code == TCPX_CANCELLED) ++ended;
      if (code == TCPX_OK) ++over;
    });
  EXPECT_TRUE(eventually([&] { return waiting == 2; }));
  std::this_thread::sleep_for(Ms{50});  // from there into the wait
  Stopwatch watch;
  engine.destroy();
  for (auto& waiter : waiters) waiter.join();
  EXPECT_LT(watch.elapsed(), patience(3'000));
  EXPECT_EQ(ended + over, 2);
  *met = over == 0;
}
TEST(Shutdown, WakesThreadsThatWaitForTransfers) {
  until_under_way(destroy_while_threads_wait);
}

void destroy_the_peer_under_transfers(bool* met) {
  Peer victim;
  victim.create(fault_options());
  Running running;
  Engine engine = make_engine(fault_options());
  ASSERT_NO_FATAL_FAILURE(running.start(engine, victim));
  ASSERT_NO_FATAL_FAILURE(running.keep_running());
  victim("destroy");
  *met = true;
  for (Transfer& transfer : running.transfers) {
    tcpx_code code = transfer.wait(kLong).code();
    *met &= code != TCPX_OK;
    EXPECT_TRUE(code == TCPX_PEER_CLOSED || code == TCPX_OK) << tcpx_code_name(code);
  }
  engine.destroy();
}
// A peer that is destroyed under our running transfers: told as closed, not as a crash.
TEST(Shutdown, OfThePeerEndsOurTransfersAsPeerClosed) {
  until_under_way(destroy_the_peer_under_transfers);
}

// The goodbye comes on every lane, the confirmation on one: none of them may overtake it.
TEST(Shutdown, OfWhoTookANotificationDoesNotUnsayThatItArrived) {
  Engine engine = make_engine(fault_options({{"lanes", "4"}}));
  for (int round = 0; round < smaller_if_sanitized(150, 12); ++round) {
    Engine taker = make_engine(fault_options({{"lanes", "4"}}));
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(engine.connect(taker.connection_info(), &peer)));
    ASSERT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
    std::thread leaving([&] {
      Notification note;
      EXPECT_TRUE(succeeded(taker.next_notification(&note, kLong)));
      taker.destroy();
    });
    EXPECT_TRUE(succeeded(engine.notify(peer, "the last word", kLong))) << round;
    leaving.join();
  }
}

TEST(Shutdown, RightAfterCreateAndRightAfterConnectIsFine) {
  Holdings before;
  {
    Engine target = make_engine(fault_options());
    for (int i = 0; i < 20; ++i) {
      Engine engine = make_engine(fault_options({{"lanes", "4"}}));
      tcpx_peer peer = 0;
      if (i % 2) {
        ASSERT_TRUE(succeeded(engine.connect(target.connection_info(), &peer)));
      }
      if (i % 4 == 3) (void)engine.peer_wait(peer, Ms{1});
    }
  }
  EXPECT_TRUE(before.restored()) << before.now();
}

}  // namespace
}  // namespace tcpx::test
