// Fences where a plugin is slow to let go: they end within their own time, say what is true, hold
// up nobody else, and can be asked for again.
#include "net_fault_fixture.h"

namespace tcpx::test {
namespace {

// A request takes 125 ms, what the plugin has been given 14 s: it moves all the time, and for
// longer than any fence may take.
constexpr const char* kSlowly = "slow_socket:512K";
constexpr Ms kFence = patience(3'000);  // a second of waiting, and some scheduling

struct NetFence : NetFault {
  Options slow(const Options& more = {}) {
    return allowed(merged(more, {{"chunk_bytes", "512K"},
                                 {"net_chunk", "64K"},
                                 {"striping", "round_robin"},
                                 {"deadline", "30s"},
                                 {"connect_timeout", "8s"},
                                 {"lane_timeout", "20s"},
                                 {"peer_timeout", "30s"}}));
  }
  // The plugin has as much of the WRITE as it takes.
  void start_slow_write(Ms deadline = Ms{-1}) {
    start(kSlowly, slow());
    ASSERT_TRUE(succeeded(meet()));
    ASSERT_TRUE(succeeded(post(TCPX_WRITE, kBytes, deadline)));
    ASSERT_TRUE(eventually([&] { return emulator_counters(plugin).tx_bytes > 100'000; }));
  }
  // The memory is the caller's again: what it holds from now on does not reach the peer.
  void expect_not_read_any_more(uint64_t seed) {
    fill(*local.memory, 0, kBytes, Pattern(seed), 0);
    std::this_thread::sleep_for(Ms{1'500});
    Reply reply = peer->call("no_trace m {} 0", seed);
    EXPECT_TRUE(reply.ok()) << "memory that was given back was read: " << reply.text;
  }
};

TEST_F(NetFence, DeregisterWaitsForWhatThePluginReads) {
  start_slow_write();
  Stopwatch watch;
  ASSERT_TRUE(succeeded(engine.deregister(local.region)));
  EXPECT_LT(watch.elapsed(), kFence);
  expect_not_read_any_more(50);
}

TEST_F(NetFence, ReleaseWaitsForWhatThePluginReads) {
  start_slow_write();
  Stopwatch watch;
  transfer.release();
  EXPECT_LT(watch.elapsed(), kFence);
  expect_not_read_any_more(51);
}

// Its memory is safe to reuse; and whoever else wants something of the engine meanwhile gets it.
TEST_F(NetFence, ADeadlineIsNotReportedWhileThePluginReads) {
  start_slow_write(patience(300));
  // Not before: the plugin's probe forks, and TSan does not bear that beside threads.
  Engine other = make_engine(fault_options({{"require_path", "tcp"}}));
  std::this_thread::sleep_for(patience(400));
  Stopwatch connecting;
  tcpx_peer other_id = 0;
  ASSERT_TRUE(succeeded(engine.connect(other.connection_info(), &other_id)));
  ASSERT_TRUE(succeeded(engine.peer_wait(other_id, kLong)));
  EXPECT_LT(connecting.elapsed(), patience(700)) << "one peer's fence holds up the engine";
  Stopwatch watch;
  EXPECT_EQ(transfer.wait(kLong).code(), TCPX_DEADLINE) << transfer.error();
  EXPECT_LT(watch.elapsed(), kFence);
  expect_not_read_any_more(52);
}

// A stopped direction behind a live one: the lane is not alive because the other half of it is.
TEST_F(NetFence, ADeadDirectionIsSeenBehindALiveOne) {
  start("slow_socket:1K", slow());
  Local landing = make_local(engine, kBytes, 0, 7);
  ASSERT_TRUE(succeeded(meet()));
  std::atomic<bool> stop{false};
  std::atomic<int> reads{0};
  std::thread reader([&] {
    Transfer read;
    if (!engine.prepare(id, TCPX_READ, {{landing.region, 0, 1 << 20}}, {{&remote, 0, 1 << 20}},
                        &read))
      return;
    while (!stop && read.post() && read.wait(kLong)) ++reads;
  });
  ASSERT_TRUE(succeeded(post(TCPX_WRITE, 512 << 10)));
  EXPECT_TRUE(eventually([&] { return reads > 10; }));
  std::this_thread::sleep_for(Ms{300});
  Stopwatch watch;
  tcpx_code code = transfer.cancel(Ms{500}).code();
  EXPECT_LT(watch.elapsed(), Ms{500} + kTicks);
  EXPECT_TRUE(code == TCPX_OK || code == TCPX_DEADLINE || code == TCPX_PEER_TIMEOUT)
      << tcpx_code_name(code);
  watch = {};
  EXPECT_TRUE(succeeded(engine.deregister(local.region)));
  EXPECT_LT(watch.elapsed(), kFence);
  stop = true;
  reader.join();
}

// The lane had chunks on their way in when it ended. They are nobody's any more.
TEST_F(NetFence, AFenceAfterALanesEndFindsNothingOnItsWay) {
  start("slow_socket:1K", slow(), kSlowly);
  Local landing = make_local(engine, kBytes, 0, 7);
  ASSERT_TRUE(succeeded(meet()));
  Transfer read;
  ASSERT_TRUE(succeeded(
      engine.prepare(id, TCPX_READ, {{landing.region, 0, kBytes}}, {{&remote, 0, kBytes}}, &read)));
  ASSERT_TRUE(succeeded(read.post()));
  ASSERT_TRUE(succeeded(post(TCPX_WRITE)));
  ASSERT_TRUE(eventually([&] {
    return emulator_counters(plugin).receives > 3 && emulator_counters(plugin).sends > 3;
  }));
  // What is being sent cannot be called back: this costs the lane.
  std::thread fence([&] { EXPECT_TRUE(succeeded(engine.deregister(local.region))); });
  for (Stopwatch watch; watch.elapsed() < patience(1'500);) {
    Local other = make_local(engine, 4096, kReadWrite, 3);
    EXPECT_TRUE(succeeded(engine.deregister(other.region)));
  }
  fence.join();
  EXPECT_TRUE(succeeded(engine.deregister(landing.region)));
  EXPECT_FALSE(read.wait(kLong));
}

// The same without a fence: the watchdog gives such a lane up.
TEST_F(NetFence, ADeadDirectionBehindALiveOneCostsTheLane) {
  start("slow_socket:1K", slow({{"lane_timeout", time_option(600)}}));
  Local landing = make_local(engine, kBytes, 0, 7);
  ASSERT_TRUE(succeeded(meet()));
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    Transfer read;
    if (!engine.prepare(id, TCPX_READ, {{landing.region, 0, 1 << 20}}, {{&remote, 0, 1 << 20}},
                        &read))
      return;
    while (!stop && read.post() && read.wait(kLong)) continue;
  });
  ASSERT_TRUE(succeeded(post(TCPX_WRITE, 512 << 10)));
  Stopwatch watch;
  EXPECT_EQ(transfer.wait(patience(5'000)).code(), TCPX_PEER_TIMEOUT) << transfer.error();
  stop = true;
  reader.join();
}

// A call that takes longer than anybody waits, and comes back. Nothing is promised while it lasts;
// afterwards all is as if it had never been.
TEST_F(NetFence, WhatAHangingCallHeldCanBeHadWhenItComesBack) {
  start("pause_in@4:isend/" + std::to_string(patience(4'000).count()),
        allowed({{"deadline", time_option(1'000)}}));
  Local other = make_local(engine, kBytes, kReadWrite, 3);
  ASSERT_TRUE(succeeded(meet()));
  ASSERT_TRUE(succeeded(post(TCPX_WRITE)));
  ASSERT_TRUE(eventually([&] { return fired(); })) << "the call that hangs was not reached";
  for (int time = 0; time < 2; ++time) {
    Stopwatch watch;
    Result result = engine.deregister(local.region);
    EXPECT_LT(watch.elapsed(), patience(1'000) + kTicks) << "deregister has its own deadline";
    EXPECT_TRUE(result.code() == TCPX_DEADLINE || result.code() == TCPX_PATH_UNAVAILABLE)
        << result.name() << result.text();
    EXPECT_NE(result.text().find("do not free"), std::string::npos) << result.text();
  }
  Result result;
  EXPECT_TRUE(eventually([&] { return (result = engine.deregister(local.region)).ok(); }))
      << result.text();
  EXPECT_TRUE(succeeded(engine.deregister(other.region)));
  EXPECT_EQ(engine.deregister(local.region).code(), TCPX_NOT_FOUND);
  auto gone = [&] { return counters(engine)["peers"][0]["lanes"][0]["thread_cpus"] == ""; };
  EXPECT_TRUE(eventually(gone)) << "its thread is not left behind";
}

// Time in which this process did not run is nobody's fault.
TEST_F(NetFence, AStoppedProcessDoesNotTakeItsOwnThreadsForHung) {
  for (int trial = 0; trial < 6; ++trial) {
    SCOPED_TRACE(trial);
    start("", required({{"connect_timeout", time_option(1'000)}}));
    ASSERT_TRUE(succeeded(meet()));
    Transfer moving;
    ASSERT_TRUE(succeeded(engine.prepare(id, TCPX_WRITE, {{local.region, 0, kBytes}},
                                         {{&remote, 0, kBytes}}, &moving)));
    ASSERT_TRUE(succeeded(moving.post()));
    peer->freeze();
    std::this_thread::sleep_for(patience(1'300));
    peer->thaw();
    (void)moving.wait(patience(2'000));
    Reply reply = peer->call("deregister m");
    EXPECT_TRUE(reply.ok()) << reply.text;
    moving.release();
    engine.destroy();
    if (HasFailure()) return;
  }
}

// A plugin's close that hangs takes nobody's time but its own.
TEST_F(NetFence, AnEndThatHangsHoldsUpNobody) {
  start("hang_in:close", allowed({{"connect_timeout", time_option(3'000)}}));
  Engine good = make_engine(fault_options({{"require_path", "tcp"}}));
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
  peer->freeze();  // until it is given up
  ASSERT_TRUE(eventually([&] { return fired(); })) << "the close that hangs was not reached";
  Stopwatch watch;
  tcpx_peer good_id = 0;
  ASSERT_TRUE(succeeded(engine.connect(good.connection_info(), &good_id)));
  ASSERT_TRUE(succeeded(engine.peer_wait(good_id, kLong)));
  EXPECT_LT(watch.elapsed(), patience(700));
}

// ---- what sessions leave behind ----------------------------------------------------------------

TEST_F(NetFence, AnEndedSessionLeavesNothingOpen) {
  Options options = required({{"lanes", "4"}});
  Engine server = make_engine(options);
  auto session = [&] {
    Engine client = make_engine(options);
    tcpx_peer at_client = 0, at_server = 0;
    ASSERT_TRUE(succeeded(client.connect(server.connection_info(), &at_client)));
    ASSERT_TRUE(succeeded(client.peer_wait(at_client, kLong)));
    ASSERT_TRUE(succeeded(server.accept(&at_server, kLong)));
  };
  session();
  std::this_thread::sleep_for(Ms{300});
  Holdings before;
  for (int i = 0; i < smaller_if_sanitized(8, 3); ++i) session();
  EXPECT_TRUE(before.restored()) << before.now();
  EXPECT_NE(server.counters_json().find("\"ended\""), std::string::npos) << "their status is kept";
}

// ---- sends that are done later than they arrive --------------------------------------------

TEST_F(NetFence, AReadAtFullWindowWorksWhereSendsAreDoneLate) {
  for (const char* fault : {"", "done_delayed:3000"}) {
    SCOPED_TRACE(fault);
    ::setenv("TCPX_EMU_SEND_DONE", "acked", 1);
    start("",
          required({{"chunk_bytes", "64K"},
                    {"window", "16"},
                    {"striping", "round_robin"},
                    {"lane_timeout", "20s"},
                    {"peer_timeout", "30s"}}),
          fault);
    ASSERT_TRUE(succeeded(meet()));
    for (int round = 0; round < 3; ++round)
      ASSERT_TRUE(succeeded(move(TCPX_READ))) << transfer.error();
    expect_content(TCPX_READ);
    transfer.release();
    engine.destroy();
  }
}

// ---- handles -----------------------------------------------------------------------------------

// The plugin keeps a pointer in the handle it connects with, and an honest listen() leaves none.
TEST_F(NetFence, APointerInAPeersHandleIsNeverFollowed) {
  ::setenv("TCPX_EMU_HANDLE", "pointer", 1);
  start("", required());
  engine.destroy();
  plugin += ".2";  // to be loaded anew
  std::filesystem::copy_file(TCPX_TEST_EMULATOR_PATH, plugin);
  set_faults("bad_handle");
  // Without a trial in this process, which would meet its own handle.
  engine = make_engine(required({{"net_memory", "host"}}), keep_lines());
  Result result = meet();
  // Told why, or the peer's end of the comm was gone before the reason came.
  EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
  // The peer lives, and knows why.
  std::string seen;
  EXPECT_TRUE(eventually([&] {
    seen = (*peer)("counters");
    return seen.find("handle for TCPX_EMU is not one that listen() makes") != std::string::npos;
  })) << seen;
}
TEST_F(NetFence, HandlesWithAPointerWork) {
  ::setenv("TCPX_EMU_HANDLE", "pointer", 1);
  start("", required({{"lanes", "2"}}));
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
}

}  // namespace
}  // namespace tcpx::test
