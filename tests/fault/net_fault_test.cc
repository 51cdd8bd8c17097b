// What a user of the net path sees when its plugin misbehaves: every fault of the emulator's plan
// (docs/emulator.md), plugins that cannot be loaded, and the engine's promises on this path.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>

#include "../support/emulator.h"
#include "fault_fixture.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = 8 << 20;
constexpr Ms kLaneTimeout = patience(600), kConnectTimeout = patience(1'500);
constexpr Ms kTicks = patience(700);  // until a thing is noticed that is looked for now and then

class NetFault : public ::testing::Test {
 protected:
  // Plugins read the environment once, when they are loaded. Every test has a plugin file of its
  // own, so that it is read also where one process runs several tests.
  void SetUp() override {
    for (const char* prefix : {"TCPX_EMU_", "NCCL_"}) forget_environment(prefix);
    ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
    ::setenv("TCPX_EMU_DEVICE", "host", 1);
    char folder[] = "/tmp/tcpx_net_fault.XXXXXX";
    ASSERT_NE(::mkdtemp(folder), nullptr);
    folder_ = folder;
    plugin = folder_ + "/libnccl-net-emu.so";
    std::filesystem::copy_file(TCPX_TEST_EMULATOR_PATH, plugin);
  }
  void TearDown() override {
    transfer.release();
    Stopwatch watch;
    engine.destroy();
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kNoticed);
    peer.reset();
    std::filesystem::remove_all(folder_);
  }

  static void forget_environment(const std::string& prefix) {
    std::vector<std::string> names;
    for (char** entry = environ; *entry != nullptr; ++entry)
      if (std::string text = *entry; text.rfind(prefix, 0) == 0)
        names.push_back(text.substr(0, text.find('=')));
    for (const std::string& name : names) ::unsetenv(name.c_str());
  }
  static void set_faults(const std::string& plan) { ::setenv("TCPX_EMU_FAULTS", plan.c_str(), 1); }

  // Net if it works, and nothing but net. One lane unless asked for more.
  Options allowed(const Options& more = {}) const {
    return fault_options(merged(more, {{"net_plugin", plugin}, {"lanes", "1"}}));
  }
  Options required(const Options& more = {}) const {
    return allowed(merged(more, {{"require_path", "net"}}));
  }
  Engine::Log keep_lines() {
    return [this, shown = log_to_stderr()](tcpx_log_level level, const char* line) {
      if (shown) shown(level, line);
      std::lock_guard lock(lines_mu_);
      lines_ += std::string(line) + "\n";
    };
  }
  bool logged(const std::string& text) {
    std::lock_guard lock(lines_mu_);
    return lines_.find(text) != std::string::npos;
  }
  std::string lines() {
    std::lock_guard lock(lines_mu_);
    return lines_;
  }

  // A peer process and the engine of this one; `here` and `there` are their plugins' faults. The
  // peer is more patient than we are, so it is we who notice.
  void start(const std::string& here, const Options& options, const std::string& there = "") {
    set_faults(there);
    peer = std::make_unique<Peer>();
    peer->create(merged({{"lane_timeout", "20s"}, {"peer_timeout", "30s"}}, options));
    remote = peer->memory("m", kBytes, kReadWrite, 2);
    set_faults(here);
    engine = make_engine(options, keep_lines());
    local = make_local(engine, kBytes, 0, 1);
  }
  Result meet() {
    Result result = engine.connect(peer->info(), &id);
    return result ? engine.peer_wait(id, kLong) : result;
  }
  Result post(tcpx_op op, uint64_t length = kBytes, Ms deadline = Ms{-1}) {
    Result result =
        engine.prepare(id, op, {{local.region, 0, length}}, {{&remote, 0, length}}, &transfer);
    return result ? transfer.post(deadline) : result;
  }
  Result move(tcpx_op op, uint64_t length = kBytes) {
    Result result = post(op, length);
    return result ? transfer.wait(kLong) : result;
  }
  void expect_content(tcpx_op op, uint64_t length = kBytes) {
    if (op == TCPX_WRITE) {
      EXPECT_EQ(peer->check("m", 0, length, 1, 0, 0), "");
      EXPECT_EQ((*peer)("damage m"), "");
    } else {
      EXPECT_EQ(mismatch(*local.memory, 0, length, Pattern(2), 0), -1);
      EXPECT_EQ(local.memory->damage(), "");
    }
  }
  std::string path() {
    tcpx_peer_info info{};
    return engine.peer_info(id, &info) ? info.path : "";
  }

  // WRITE, then READ of other content: both directions of the lane are right.
  void expect_both_ways_work(const std::string& expected_path) {
    ASSERT_TRUE(succeeded(move(TCPX_WRITE))) << transfer.error();
    expect_content(TCPX_WRITE);
    EXPECT_EQ(transfer.receipt().path, expected_path);
    (*peer)("fill m 0 {} 2 0 0", kBytes);
    ASSERT_TRUE(succeeded(move(TCPX_READ))) << transfer.error();
    expect_content(TCPX_READ);
  }
  // A fault that breaks one of two lanes in the middle.
  void expect_costs_one_lane(const std::string& fault, tcpx_op op, const std::string& words) {
    start(fault, required({{"lanes", "2"}, {"striping", "round_robin"}}));
    ASSERT_TRUE(succeeded(meet()));
    ASSERT_TRUE(succeeded(move(op))) << transfer.error();
    expect_content(op);
    EXPECT_TRUE(eventually([&] { return transfer.receipt().lanes_lost == 1; }, kTicks));
    // If the peer noticed first, our side says what its plugin said when the peer closed the comm.
    EXPECT_TRUE(logged(words) || logged("closed by remote peer")) << lines();
    ASSERT_TRUE(succeeded(move(op))) << "the other lane goes on: " << transfer.error();
  }
  // A fault that breaks the only lane.
  void expect_ends_the_peer(const std::string& fault, tcpx_op op, tcpx_code code,
                            const std::string& words, bool peer_sees_it_too = false) {
    start(fault, required());
    ASSERT_TRUE(succeeded(meet()));
    Stopwatch watch;
    EXPECT_EQ(move(op).code(), code) << transfer.error();
    EXPECT_LT(watch.elapsed(), kLaneTimeout + kTicks);
    // If the peer noticed first, it has closed the lane.
    bool closed = transfer.error().find("closed the connection") != std::string::npos;
    EXPECT_TRUE(transfer.error().find(words) != std::string::npos || (peer_sees_it_too && closed))
        << transfer.error();
    EXPECT_EQ(engine.peer_wait(id, Ms{0}).code(), code);
  }
  // A set-up that fails: tcp where that is allowed, else an error; both say why.
  void expect_fallback(const std::string& fault, const std::string& words) {
    start(fault, allowed());
    Stopwatch watch;
    ASSERT_TRUE(succeeded(meet()));
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(path(), "tcp");
    EXPECT_TRUE(eventually([&] { return logged("path tcp"); }, kTicks));
    EXPECT_TRUE(logged(words)) << lines();
    expect_both_ways_work("tcp");
  }
  void expect_refused(const std::string& fault, const std::string& words) {
    start(fault, required());
    Stopwatch watch;
    Result result = meet();
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
    EXPECT_NE(result.text().find("require_path is net"), std::string::npos) << result.text();
    EXPECT_NE(result.text().find(words), std::string::npos) << result.text();
  }
  // A plugin that cannot be used: an error where it is required, else life goes on without it.
  void expect_no_plugin(const Options& options, const std::string& words) {
    Engine none;
    Stopwatch watch;
    Result result = Engine::create(required(options), &none);
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE);
    EXPECT_NE(result.text().find(words), std::string::npos) << result.text();
    engine = make_engine(allowed(options), keep_lines());
    EXPECT_TRUE(logged("no net path: ")) << lines();
    EXPECT_TRUE(logged(words)) << lines();
    set_faults("");
    peer = std::make_unique<Peer>();
    peer->create(allowed());
    remote = peer->memory("m", kBytes, kReadWrite, 2);
    local = make_local(engine, kBytes, 0, 1);
    ASSERT_TRUE(succeeded(meet()));
    expect_both_ways_work("tcp");
  }
  // Whether the fault of this process's plugin has come: for a call that hangs, that it is in it.
  bool fired() const { return emulator_counters(plugin).faults_fired > 0; }
  // Posts until the call that never returns is reached. A transfer that only takes long is not yet
  // one that hangs. The time since the hang was known at the latest comes back in *watch.
  void post_until_it_hangs(tcpx_op op, Stopwatch* watch) {
    Result result;
    for (int round = 0; round < 100 && result; ++round) {
      *watch = {};
      ASSERT_TRUE(succeeded(post(op)));
      result = transfer.wait(Ms{200});
      if (!result.in_progress()) continue;
      EXPECT_LT(watch->elapsed(), patience(400)) << "a wait ends by its timeout";
      if (fired()) break;
      EXPECT_TRUE(eventually([&] { return fired() || !transfer.poll().in_progress(); }));
      *watch = {};
      result = transfer.poll();
    }
    ASSERT_TRUE(fired()) << "not one of the transfers came to the call that hangs";
    ASSERT_TRUE(result.in_progress()) << result.text();
  }
  // A call that never returns, in this process, once data moves. Other peers of the engine do not
  // notice, nor does the engine's service for new ones.
  void expect_hang_is_contained(const std::string& fault, tcpx_op op) {
    start(fault, allowed());
    Engine good = make_engine(fault_options({{"require_path", "tcp"}}));
    Local good_memory = make_local(good, kBytes, kReadWrite, 7);
    tcpx_remote_region good_remote = describe(good, good_memory.region);
    ASSERT_TRUE(succeeded(meet()));
    ASSERT_EQ(path(), "net");
    Stopwatch watch;
    ASSERT_NO_FATAL_FAILURE(post_until_it_hangs(op, &watch));

    Stopwatch service;
    tcpx_peer good_id = 0;
    ASSERT_TRUE(succeeded(engine.connect(good.connection_info(), &good_id)));
    ASSERT_TRUE(succeeded(engine.peer_wait(good_id, kLong)));
    Transfer with_good;
    ASSERT_TRUE(succeeded(engine.prepare(good_id, TCPX_WRITE, {{local.region, 0, kBytes}},
                                         {{&good_remote, 0, kBytes}}, &with_good)));
    ASSERT_TRUE(succeeded(with_good.post()));
    ASSERT_TRUE(succeeded(with_good.wait(kLong)));
    EXPECT_LT(service.elapsed(), patience(500)) << "a hanging plugin hangs nobody else";

    Result result = transfer.wait(kLong);
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << transfer.error();
    EXPECT_NE(transfer.error().find("the net plugin hangs"), std::string::npos) << transfer.error();
    ASSERT_TRUE(succeeded(with_good.post()));
    ASSERT_TRUE(succeeded(with_good.wait(kLong)));
    with_good.release();
    transfer.release();
    Stopwatch end;
    engine.destroy();
    EXPECT_LT(end.elapsed(), kConnectTimeout + kTicks);
  }

  Local local;
  Engine engine;
  Transfer transfer;
  std::unique_ptr<Peer> peer;
  tcpx_remote_region remote{};
  tcpx_peer id = 0;
  std::string plugin;

 private:
  std::string folder_;
  std::mutex lines_mu_;
  std::string lines_;
};

// ---- bytes that do not arrive as they should ---------------------------------------------------
// Each lane's set-up takes one receive and one send in each process: later ones are payload.

TEST_F(NetFault, NoCmsgCostsALaneAndTheTransferIsDone) {
  expect_costs_one_lane("no_cmsg@3", TCPX_READ, "rx no cmsg");
}
TEST_F(NetFault, NoCmsgOnTheOnlyLaneEndsThePeerInThePluginsWords) {
  expect_ends_the_peer("no_cmsg@2", TCPX_READ, TCPX_PEER_DISCONNECTED, "rx no cmsg");
}
TEST_F(NetFault, NoCmsgAtThePeerCostsALaneAndTheTransferIsDone) {
  start("", required({{"lanes", "2"}}), "no_cmsg@3");
  ASSERT_TRUE(succeeded(meet()));
  ASSERT_TRUE(succeeded(move(TCPX_WRITE))) << transfer.error();
  expect_content(TCPX_WRITE);
  EXPECT_EQ(transfer.receipt().lanes_lost, 1u);
}
TEST_F(NetFault, HostLandedCostsALaneAndTheTransferIsDone) {
  expect_costs_one_lane("host_landed@3", TCPX_READ, "data landed on host memory");
}
TEST_F(NetFault, HostLandedOnTheOnlyLaneEndsThePeerInThePluginsWords) {
  expect_ends_the_peer("host_landed@2", TCPX_READ, TCPX_PEER_DISCONNECTED,
                       "data landed on host memory");
}
TEST_F(NetFault, PoolStarvedForAWhileOnlyDelays) {
  start("pool_starved@2:300", required());
  ASSERT_TRUE(succeeded(meet()));
  Stopwatch watch;
  ASSERT_TRUE(succeeded(move(TCPX_READ))) << transfer.error();
  EXPECT_GE(watch.elapsed(), Ms{250});
  expect_content(TCPX_READ);
  EXPECT_EQ(transfer.receipt().lanes_lost, 0u);
}
TEST_F(NetFault, PoolStarvedForEverEndsByLaneTimeout) {
  expect_ends_the_peer("pool_starved@2", TCPX_READ, TCPX_PEER_TIMEOUT,
                       "the net plugin has made no progress for");
}
TEST_F(NetFault, PoolStarvedForEverEndsByTheTransfersDeadlineWhereThatIsSooner) {
  start("pool_starved@2", required());
  ASSERT_TRUE(succeeded(meet()));
  Stopwatch watch;
  ASSERT_TRUE(succeeded(post(TCPX_READ, kBytes, patience(200))));
  EXPECT_EQ(transfer.wait(kLong).code(), TCPX_DEADLINE) << transfer.error();
  EXPECT_LT(watch.elapsed(), kLaneTimeout);
}
TEST_F(NetFault, DataHangOnTheOnlyLaneEndsThePeerByLaneTimeout) {
  expect_ends_the_peer("data_hang@3", TCPX_WRITE, TCPX_PEER_TIMEOUT,
                       "the net plugin has made no progress for");
}
TEST_F(NetFault, DataHangCostsALaneAndTheTransferIsDone) {
  expect_costs_one_lane("data_hang@5", TCPX_WRITE, "the net plugin has made no progress for");
}
TEST_F(NetFault, CtrlClosedOnTheOnlyLaneEndsThePeer) {
  expect_ends_the_peer("ctrl_closed@3", TCPX_WRITE, TCPX_PEER_DISCONNECTED, "the net plugin's",
                       /*peer_sees_it_too=*/true);
}
TEST_F(NetFault, CtrlClosedCostsALaneAndTheTransferIsDone) {
  expect_costs_one_lane("ctrl_closed@5", TCPX_WRITE, "the net plugin's");
}
TEST_F(NetFault, OneOfTwoDevicesLostCostsItsLaneAndTheTransferIsDone) {
  ::setenv("TCPX_EMU_DEVICES", "2", 1);
  expect_costs_one_lane("device_lost@4,dev=1", TCPX_WRITE, "device 1 is lost");
}
TEST_F(NetFault, EveryDeviceLostEndsThePeer) {
  start("device_lost@6", required({{"lanes", "2"}}));
  ASSERT_TRUE(succeeded(meet()));
  EXPECT_EQ(move(TCPX_WRITE).code(), TCPX_PEER_DISCONNECTED);
  EXPECT_NE(transfer.error().find("device 0 is lost"), std::string::npos) << transfer.error();
}

// ---- slow, but right ---------------------------------------------------------------------------

TEST_F(NetFault, SlowSocketIsOnlySlower) {
  start("slow_socket:16M", required());
  ASSERT_TRUE(succeeded(meet()));
  Stopwatch watch;
  ASSERT_TRUE(succeeded(move(TCPX_WRITE))) << transfer.error();
  EXPECT_GE(watch.elapsed(), Ms{300});
  expect_content(TCPX_WRITE);
  EXPECT_EQ(transfer.receipt().lanes_lost, 0u);
}
// A chunk takes longer than lane_timeout, but its requests come in one by one.
TEST_F(NetFault, ASocketSlowerThanAChunkPerLaneTimeoutIsNotTakenForDead) {
  start("slow_socket:1M", required({{"chunk_bytes", "1M"}, {"net_chunk", "64K"}}));
  ASSERT_TRUE(succeeded(meet()));
  ASSERT_TRUE(succeeded(move(TCPX_WRITE, 1 << 20))) << transfer.error();
  expect_content(TCPX_WRITE, 1 << 20);
}
TEST_F(NetFault, LateConsumeIsOnlySlower) {
  ::setenv("TCPX_EMU_POOL_MB", "2", 1);  // or nobody would notice
  start("late_consume:20", required());
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
  EXPECT_EQ(transfer.receipt().lanes_lost, 0u);
}
TEST_F(NetFault, DoneDelayedIsOnlySlower) {
  start("done_delayed:5000", required());
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
  EXPECT_EQ(transfer.receipt().lanes_lost, 0u);
}

// As on tcp: silence is the peer's, not the plugin's, and lasts for peer_timeout.
TEST_F(NetFault, APeerThatIsStoppedForAWhileIsNotGivenUp) {
  start("", required({{"peer_timeout", "10s"}}));
  ASSERT_TRUE(succeeded(meet()));
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    if (op == TCPX_READ) (*peer)("fill m 0 {} 2 0 0", kBytes);
    ASSERT_TRUE(succeeded(post(op, kBytes, kLong)));
    peer->freeze();
    std::this_thread::sleep_for(2 * kLaneTimeout);
    peer->thaw();
    ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    expect_content(op);
  }
}

// ---- set-up ------------------------------------------------------------------------------------

TEST_F(NetFault, ConnectAtOnceWorks) {
  start("connect_at_once", required({{"lanes", "2"}}), "connect_at_once");
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
}
// Requests are taken only when the sockets are there, which takes longer than any patience with a
// single call.
TEST_F(NetFault, ConnectAtOnceWithSlowSocketsWorks) {
  ::setenv("TCPX_EMU_SOCKET_DELAY_US", "300000", 1);
  start("connect_at_once", required({{"connect_timeout", "5s"}}), "connect_at_once");
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
}
TEST_F(NetFault, ConnectPollsWorks) {
  start("connect_polls:200", required({{"lanes", "2"}}));
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
}
TEST_F(NetFault, SteeringRefusedForAWhileIsTriedAgain) {
  start("steering_refused:2", required());
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
}
TEST_F(NetFault, SteeringRefusedFallsBackToTcpAndTheLogSaysWhy) {
  expect_fallback("steering_refused", "flow steering rule failed");
}
TEST_F(NetFault, SteeringRefusedIsAnErrorWhereNetIsRequired) {
  expect_refused("steering_refused", "flow steering rule failed");
}
TEST_F(NetFault, SteeringSilentFallsBackToTcpWithinConnectTimeout) {
  expect_fallback("steering_silent", "were not set up in time");
}
// Its comms break together with its stream; what is told is that it died.
TEST_F(NetFault, APeerKilledInSetUpIsLostAndNotWithoutThePath) {
  for (int time = 0; time < 5; ++time) {
    start("", required(), "steering_silent");
    ASSERT_TRUE(succeeded(engine.connect(peer->info(), &id)));
    std::this_thread::sleep_for(patience(20 * time));
    peer->kill();
    Result result = engine.peer_wait(id, kLong);
    EXPECT_TRUE(result.code() == TCPX_PEER_DISCONNECTED || result.code() == TCPX_CONNECT_FAILED)
        << result.text();
    engine.destroy();
  }
}
TEST_F(NetFault, SteeringSilentIsAnErrorWhereNetIsRequired) {
  expect_refused("steering_silent", "were not set up in time");
}

// ---- loading -----------------------------------------------------------------------------------

TEST_F(NetFault, ExitInInitIsReportedAndThisProcessLives) {
  set_faults("exit_in_init");
  expect_no_plugin({}, "dies in init");
}
TEST_F(NetFault, HangInInitIsReportedWithinConnectTimeout) {
  set_faults("hang_in:init");
  expect_no_plugin({}, "hangs in init");
}
TEST_F(NetFault, RefusedInitSaysWhatThePluginSaid) {
  set_faults("no_such_fault");
  expect_no_plugin({}, "no such fault");
}
TEST_F(NetFault, AMissingFileIsReported) {
  expect_no_plugin({{"net_plugin", plugin + ".not"}}, "no net plugin file");
}
TEST_F(NetFault, ALibraryThatIsNoPluginIsReported) {
  expect_no_plugin({{"net_plugin", "libm.so.6"}}, "no known symbol");
}
TEST_F(NetFault, AFileThatIsNoLibraryIsReported) {
  std::string text = plugin + ".txt";
  std::ofstream(text) << "not an ELF file\n";
  expect_no_plugin({{"net_plugin", text}}, "not loadable");
}
TEST_F(NetFault, NoInterfaceIsReported) {
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "nosuch", 1);
  Engine none;
  Result result = Engine::create(required(), &none);
  EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE);
  EXPECT_NE(result.text().find("no interface found"), std::string::npos) << result.text();
}
TEST_F(NetFault, ADeviceThatIsNotThereIsReported) {
  Engine none;
  Result result = Engine::create(required({{"net_devices", "eth77"}}), &none);
  EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE);
  EXPECT_NE(result.text().find("eth77"), std::string::npos) << result.text();
}

// ---- calls that never return -------------------------------------------------------------------

TEST_F(NetFault, HangInTestIsContained) {
  expect_hang_is_contained("hang_in@60:test", TCPX_WRITE);
}
TEST_F(NetFault, HangInIsendIsContained) {
  expect_hang_is_contained("hang_in@2:isend", TCPX_WRITE);
}
TEST_F(NetFault, HangInIrecvIsContained) {
  expect_hang_is_contained("hang_in@2:irecv", TCPX_READ);
}
TEST_F(NetFault, HangInRegmrIsContained) {
  expect_hang_is_contained("hang_in@3:regmr", TCPX_WRITE);
}
TEST_F(NetFault, HangInConsumeIsContained) {
  expect_hang_is_contained("hang_in@2:consume", TCPX_READ);
}
// Nobody can promise that a thread in the plugin will not use the memory; so nobody does.
TEST_F(NetFault, CancelDoesNotPromiseWhatAHangingPluginMayBreak) {
  start("hang_in@2:irecv", allowed());
  ASSERT_TRUE(succeeded(meet()));
  ASSERT_TRUE(succeeded(post(TCPX_READ)));
  ASSERT_TRUE(eventually([&] { return fired(); })) << "the call that hangs was not reached";
  for (int time = 0; time < 2; ++time) {
    Stopwatch watch;
    Result result = transfer.cancel(Ms{100});
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
    EXPECT_NE(result.text().find("do not free it"), std::string::npos) << result.text();
    tcpx_code code = transfer.poll().code();  // who was first: the cancel, or the peer's end
    EXPECT_TRUE(code == TCPX_CANCELLED || code == TCPX_PATH_UNAVAILABLE) << tcpx_code_name(code);
  }
}
TEST_F(NetFault, DeregisterDoesNotPromiseWhatAHangingPluginMayBreak) {
  start("hang_in@2:isend", allowed({{"deadline", time_option(2'000)}}));
  ASSERT_TRUE(succeeded(meet()));
  ASSERT_TRUE(succeeded(post(TCPX_WRITE)));
  ASSERT_TRUE(eventually([&] { return fired(); })) << "the call that hangs was not reached";
  Stopwatch watch;
  Result result = engine.deregister(local.region);
  EXPECT_LT(watch.elapsed(), patience(2'000) + kConnectTimeout + kTicks);
  EXPECT_TRUE(result.code() == TCPX_DEADLINE || result.code() == TCPX_PATH_UNAVAILABLE)
      << result.text();
  EXPECT_NE(result.text().find("do not free"), std::string::npos) << result.text();
}
TEST_F(NetFault, HangInTestAtThePeerEndsItByLaneTimeout) {
  start("", required(), "hang_in@60:test");
  ASSERT_TRUE(succeeded(meet()));
  Result result;
  Stopwatch watch;
  for (int round = 0; round < 100 && result; ++round) {
    watch = {};
    result = move(TCPX_WRITE);
  }
  EXPECT_EQ(result.code(), TCPX_PEER_TIMEOUT) << transfer.error();
  EXPECT_LT(watch.elapsed(), kPeerTimeout + kNoticed);
  peer->kill();
}
// In set-up: the lane, stream and all, is in the hands of the plugin.
TEST_F(NetFault, HangInSetUpEndsTheConnectInTime) {
  for (const char* call : {"listen", "connect", "accept"}) {
    SCOPED_TRACE(call);
    start(std::string("hang_in:") + call, allowed());
    Stopwatch watch;
    Result result = meet();
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
    EXPECT_NE(result.text().find("the net plugin hangs"), std::string::npos) << result.text();
    Stopwatch end;
    engine.destroy();
    EXPECT_LT(end.elapsed(), kConnectTimeout + kTicks);
    std::string next = plugin + "." + call;  // the next one reads its faults anew
    std::filesystem::copy_file(TCPX_TEST_EMULATOR_PATH, next);
    plugin = next;
  }
}
TEST_F(NetFault, HangInCloseHoldsUpNobody) {
  start("hang_in:close", allowed());
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
  Stopwatch watch;
  EXPECT_TRUE(succeeded(engine.disconnect(id)));
  engine.destroy();
  EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
}

// ---- the engine's promises, on this path -------------------------------------------------------

// Both ends in this process, net only, two lanes; `memory`: "auto" is unpacked, "host" is not.
struct NetPair : Pair {
  NetPair(const Options& options, const char* memory)
      : Pair(merged({{"lanes", "2"}, {"net_memory", memory}, {"chunk_bytes", "256K"}}, options)) {}
};
constexpr tcpx_op kOps[] = {TCPX_WRITE, TCPX_READ};
constexpr const char* kMemories[] = {"auto", "host"};

// Owns the memory from now on: fills it and sees whether anything else writes there.
void expect_ours(Memory& memory, uint64_t seed, Ms time) {
  fill(memory, 0, memory.size(), Pattern(seed), 0);
  Stopwatch watch;
  do {
    ASSERT_EQ(mismatch(memory, 0, memory.size(), Pattern(seed), 0), -1)
        << "a foreign byte landed " << watch.elapsed().count() << " ms later";
  } while (watch.elapsed() < time);
}

TEST_F(NetFault, CancelIsAFence) {
  for (const char* memory : kMemories) {
    NetPair pair(required(), memory);
    pair.allocate(kBytes);
    uint64_t seed = 1'000;
    for (tcpx_op op : kOps) {
      int hits = 0;
      for (uint64_t round = 0; round < 8 || (hits == 0 && round < 100); ++round) {
        SCOPED_TRACE(strf("{} {} {}", memory, op == TCPX_READ ? "READ" : "WRITE", round));
        Transfer moving = pair.prepare(op, kBytes);
        ASSERT_TRUE(succeeded(moving.post()));
        std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
        ASSERT_TRUE(succeeded(moving.cancel(kLong)));
        hits += moving.poll().code() == TCPX_CANCELLED;
        Local& source = op == TCPX_READ ? pair.memory_b : pair.memory_a;
        Local& target = op == TCPX_READ ? pair.memory_a : pair.memory_b;
        fill(*source.memory, 0, kBytes, Pattern(++seed), 0);
        ASSERT_EQ(first_trace(*target.memory, Pattern(seed)), kBytes)
            << "memory that was given back was read";
        expect_ours(*target.memory, ++seed, Ms{20});
        if (HasFatalFailure()) return;
      }
      EXPECT_GT(hits, 0);
    }
  }
}

TEST_F(NetFault, DeregisterIsAFenceOnEitherSide) {
  for (const char* memory : kMemories) {
    NetPair pair(required(), memory);
    pair.allocate(kBytes);
    uint64_t seed = 1'000;
    for (tcpx_op op : kOps)
      for (bool here : {true, false}) {
        int hits = 0;
        for (uint64_t round = 0; round < 5 || (hits == 0 && round < 100); ++round) {
          SCOPED_TRACE(strf("{} {} {} {}", memory, op == TCPX_READ ? "READ" : "WRITE",
                            here ? "here" : "there", round));
          Transfer moving = pair.prepare(op, kBytes);
          ASSERT_TRUE(succeeded(moving.post()));
          std::this_thread::sleep_for(std::chrono::microseconds(300 * (round % 5)));
          Engine& owner = here ? pair.a : pair.b;
          Local& owned = here ? pair.memory_a : pair.memory_b;
          Local& other = here ? pair.memory_b : pair.memory_a;
          ASSERT_TRUE(succeeded(owner.deregister(owned.region)));
          expect_ours(*owned.memory, ++seed, Ms{20});
          tcpx_code code = moving.wait(kLong).code();
          EXPECT_TRUE(code == TCPX_OK || code == TCPX_REGION_REVOKED || code == TCPX_STALE_REGION)
              << moving.error();
          hits += code != TCPX_OK;
          if ((op == TCPX_WRITE) == here) {
            ASSERT_EQ(first_trace(*other.memory, Pattern(seed)), kBytes)
                << "memory that was given back was read";
          }
          if (HasFatalFailure()) return;
          ASSERT_TRUE(succeeded(
              owner.register_memory(owned.data(), kBytes, here ? 0 : kReadWrite, &owned.region)));
          if (!here) pair.remote_b = describe(pair.b, owned.region);
        }
        EXPECT_GT(hits, 0);
      }
  }
}

// The peer is stopped in the middle, so what was given to the plugin does not come back.
TEST_F(NetFault, FencesHoldWithAStoppedPeer) {
  const Options patient = {{"peer_timeout", "30s"}, {"lane_timeout", "20s"}, {"lanes", "2"}};
  for (const char* memory : kMemories)
    for (tcpx_op op : kOps)
      for (bool by_cancel : {true, false}) {
        SCOPED_TRACE(strf("{} {} {}", memory, op == TCPX_READ ? "READ" : "WRITE",
                          by_cancel ? "cancel" : "deregister"));
        start("", required(merged({{"net_memory", memory}}, patient)));
        ASSERT_TRUE(succeeded(meet()));
        ASSERT_TRUE(succeeded(post(op)));
        std::this_thread::sleep_for(Ms{1});
        peer->freeze();
        Stopwatch watch;
        if (by_cancel) {
          tcpx_code code = transfer.cancel(Ms{100}).code();
          EXPECT_TRUE(code == TCPX_OK || code == TCPX_DEADLINE || code == TCPX_PEER_TIMEOUT)
              << tcpx_code_name(code);
        } else {
          EXPECT_TRUE(succeeded(engine.deregister(local.region)));
        }
        EXPECT_LT(watch.elapsed(), patience(1'500)) << "a lane that does not let go is closed";
        expect_ours(*local.memory, 40, Ms{30});
        peer->thaw();
        expect_ours(*local.memory, 41, Ms{100});
        for (int seed : {40, 41}) {
          Reply reply = peer->call("no_trace m {} 0", seed);
          EXPECT_TRUE(reply.ok()) << "memory that was given back was read: " << reply.text;
        }
        transfer.release();
        engine.destroy();
        if (HasFailure()) return;
      }
}

TEST_F(NetFault, UnalignedAndTinyMemoryWorks) {
  for (const char* memory : kMemories) {
    NetPair pair(required(), memory);
    for (uint64_t size : {1, 7, 4095, 4097, 100'001, 1'000'003})
      for (uint64_t skew : {0, 1, 2047}) {
        SCOPED_TRACE(strf("{} {} bytes, skew {}", memory, size, skew));
        Local a = make_local(pair.a, size, 0, size, "host", skew);
        Local b = make_local(pair.b, size, kReadWrite, size + 1, "host", skew * 3 % 4096);
        tcpx_remote_region b_remote = describe(pair.b, b.region);
        for (tcpx_op op : kOps) {
          Transfer moving;
          ASSERT_TRUE(succeeded(pair.a.prepare(pair.b_at_a, op, {{a.region, 0, size}},
                                               {{&b_remote, 0, size}}, &moving)));
          ASSERT_TRUE(succeeded(moving.post()));
          ASSERT_TRUE(succeeded(moving.wait(kLong))) << moving.error();
          EXPECT_STREQ(moving.receipt().path, "net");
          Memory& target = op == TCPX_READ ? *a.memory : *b.memory;
          Pattern expected(op == TCPX_READ ? size + 2 : size);
          EXPECT_EQ(mismatch(target, 0, size, expected, 0), -1);
          EXPECT_EQ(a.memory->damage() + b.memory->damage(), "");
          fill(*b.memory, 0, size, Pattern(size + 2), 0);
        }
        ASSERT_TRUE(succeeded(pair.a.deregister(a.region)));
        ASSERT_TRUE(succeeded(pair.b.deregister(b.region)));
      }
  }
}

TEST_F(NetFault, MemoryBeyondTwoGigabytesWorks) {
  constexpr uint64_t kGiB = 1ull << 30, kSize = 5 * kGiB + 12'345, kPart = 3'000'001;
  for (const char* memory : kMemories) {
    NetPair pair(required(), memory);
    Local a = make_local(pair.a, kSize, 0, 1, "sparse");
    Local b = make_local(pair.b, kSize, kReadWrite, 2, "sparse");
    tcpx_remote_region b_remote = describe(pair.b, b.region);
    for (uint64_t at : {kGiB - kPart / 2, 2 * kGiB - kPart / 2, 4 * kGiB - 17, kSize - kPart}) {
      SCOPED_TRACE(strf("{} at {}", memory, at));
      fill(*a.memory, at, kPart, Pattern(1), at);
      std::vector<tcpx_local_piece> here = {{a.region, at, kPart}};
      Transfer write, read;
      ASSERT_TRUE(succeeded(
          pair.a.prepare(pair.b_at_a, TCPX_WRITE, here, {{&b_remote, at, kPart}}, &write)));
      ASSERT_TRUE(succeeded(write.post()));
      ASSERT_TRUE(succeeded(write.wait(kLong))) << write.error();
      EXPECT_EQ(mismatch(*b.memory, at, kPart, Pattern(1), at), -1);
      fill(*b.memory, at, kPart, Pattern(2), at);
      ASSERT_TRUE(
          succeeded(pair.a.prepare(pair.b_at_a, TCPX_READ, here, {{&b_remote, at, kPart}}, &read)));
      ASSERT_TRUE(succeeded(read.post()));
      ASSERT_TRUE(succeeded(read.wait(kLong))) << read.error();
      EXPECT_EQ(mismatch(*a.memory, at, kPart, Pattern(2), at), -1);
    }
  }
}

TEST_F(NetFault, StrictModeFindsNoMisuseInAMixedRun) {
  ::setenv("TCPX_EMU_FRAGMENTS", "mixed", 1);
  NetPair pair(required({{"net_sockets", "4"}, {"net_chunk", "64K"}}), "auto");
  pair.allocate(kBytes);
  Rng rng(7);
  std::vector<Transfer> moving(16);
  for (int round = 0; round < 400; ++round) {
    Transfer& next = moving[rng.below(moving.size())];
    uint64_t offset = rng.below(kBytes), length = 1 + rng.below(kBytes - offset);
    if (round % 3 != 0) length = 1 + length % 5'000;
    next = pair.prepare(kOps[rng.below(2)], length, offset);  // what was there is called off
    ASSERT_TRUE(succeeded(next.post()));
    if (round % 2 == 0) {
      ASSERT_TRUE(succeeded(next.wait(kLong))) << next.error();
    }
  }
  for (Transfer& each : moving)
    if (each) {
      ASSERT_TRUE(succeeded(each.wait(kLong))) << each.error();
    }
  moving.clear();
  pair.a.destroy();
  pair.b.destroy();
  tcpx_emu_counters seen = emulator_counters(plugin);
  EXPECT_EQ(seen.misuses, 0u) << emulator(plugin).last_misuse();
  EXPECT_EQ(seen.refusals, 0u);
  EXPECT_GT(seen.receives, 1'000u);
  EXPECT_EQ(seen.consumed, seen.receives);
  EXPECT_EQ(seen.comms_open, 0u);
  EXPECT_EQ(seen.requests_live, 0u);
  EXPECT_EQ(seen.pool_pages_free, seen.pool_pages);
  EXPECT_EQ(seen.rx_host_bytes, 0u);
}

// ---- strangers ---------------------------------------------------------------------------------

// Ports this process listens on.
std::set<uint16_t> listening_ports() {
  std::set<uint16_t> out;
  for (int fd : numeric_entries("/proc/self/fd")) {
    int listening = 0;
    socklen_t length = sizeof listening;
    sockaddr_storage here{};
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || listening == 0)
      continue;
    length = sizeof here;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &length) == 0)
      out.insert(port_of(here));
  }
  return out;
}

TEST_F(NetFault, StrangersThatConnectFirstGetNoPayloadAndDoNoHarm) {
  ::setenv("TCPX_EMU_SOCKET_DELAY_US", "50000", 1);  // the right one comes later
  Options options = required({{"connect_timeout", "8s"}});
  Engine a = make_engine(options), b = make_engine(options);
  std::set<uint16_t> known = listening_ports();  // the engines' own
  std::atomic<bool> stop{false};
  std::atomic<int> met{0}, given{0};
  std::thread stranger([&] {
    std::vector<int> sockets;
    while (!stop) {
      for (uint16_t port : listening_ports()) {
        if (!known.insert(port).second) continue;
        for (bool silent : {true, false}) {
          int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
          sockaddr_in to{};
          to.sin_family = AF_INET;
          to.sin_port = htons(port);
          to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
          sockets.push_back(fd);
          if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) continue;
          ++met;
          char garbage[4096] = {};
          if (!silent) (void)!::send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
        }
      }
      std::this_thread::sleep_for(Ms{1});
    }
    for (int fd : sockets) {
      char byte;
      given += ::recv(fd, &byte, 1, MSG_DONTWAIT) > 0;
      ::close(fd);
    }
  });
  tcpx_peer b_at_a = 0;
  Result result = a.connect(b.connection_info(), &b_at_a);
  if (result) result = a.peer_wait(b_at_a, kLong);
  EXPECT_TRUE(succeeded(result));
  Local from = make_local(a, kBytes, 0, 1), to = make_local(b, kBytes, kReadWrite, 2);
  tcpx_remote_region target = describe(b, to.region);
  Transfer write;
  EXPECT_TRUE(succeeded(
      a.prepare(b_at_a, TCPX_WRITE, {{from.region, 0, kBytes}}, {{&target, 0, kBytes}}, &write)));
  EXPECT_TRUE(succeeded(write.post()));
  EXPECT_TRUE(succeeded(write.wait(kLong))) << write.error();
  EXPECT_EQ(mismatch(*to.memory, 0, kBytes, Pattern(1), 0), -1);
  stop = true;
  stranger.join();
  EXPECT_GT(met, 0);
  EXPECT_EQ(given, 0);
}

}  // namespace
}  // namespace tcpx::test
