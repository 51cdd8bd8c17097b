// What a user of the net path sees when the plugin cannot be used, or does not come back from a
// call.
#include "net_fault_fixture.h"

namespace tcpx::test {
namespace {

// ---- loading -----------------------------------------------------------------------------------

TEST_F(NetFault, ExitInInitIsReportedAndThisProcessLives) {
  set_faults("exit_in:init");
  expect_no_plugin({}, "dies in init");
}
// An application that ignores its children, or waits for all of them itself, takes the exit status
// away from whoever forks beside it.
TEST_F(NetFault, ExitInInitIsReportedAlsoWhereTheExitStatusIsTakenAway) {
  set_faults("exit_in:init");
  ::signal(SIGCHLD, SIG_IGN);
  expect_no_plugin({}, "dies in init");
  ::signal(SIGCHLD, SIG_DFL);
}
TEST_F(NetFault, HangInInitIsReportedWithinConnectTimeout) {
  set_faults("hang_in:init");
  expect_no_plugin({}, "hangs in init");
}
// Registration ends the process in real plugins when they cannot import the memory; on comms of
// either kind.
TEST_F(NetFault, ExitInARegistrationIsReportedAndThisProcessLives) {
  set_faults("exit_in:regmr");
  expect_no_plugin({}, "dies in a trial registration");
}
TEST_F(NetFault, ExitInTheRegistrationForReceivingIsReportedAndThisProcessLives) {
  set_faults("exit_in@2:regmr");
  expect_no_plugin({}, "dies in a trial registration");
}
TEST_F(NetFault, HangInARegistrationIsReportedWithinConnectTimeout) {
  set_faults("hang_in:regmr");
  expect_no_plugin({}, "hangs in a trial registration");
}
// Whoever listens to it must not forget the time.
TEST_F(NetFault, AFloodOfWarningsIsAHang) {
  set_faults("flood_in:init");
  expect_no_plugin({}, "hangs in init");
}
// Lanes would make the same calls.
TEST_F(NetFault, ExitInSetUpIsReportedAndThisProcessLives) {
  for (const char* fault : {"exit_in:listen", "exit_in:connect", "exit_in:accept"}) {
    SCOPED_TRACE(fault);
    set_faults(fault);
    Engine none;
    Result result = Engine::create(required(), &none);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE);
    EXPECT_NE(result.text().find("dies in set-up"), std::string::npos) << result.text();
  }
}
// Memory that is registered as the host's anyway is not tried as a device's.
TEST_F(NetFault, WithHostMemoryThereIsNoTrial) {
  set_faults("fail_in@1:regmr");
  engine = make_engine(required({{"net_memory", "host"}}), keep_lines());
  EXPECT_TRUE(logged("trial registration not asked for")) << lines();
}
TEST_F(NetFault, ARefusedRegistrationIsReported) {
  for (const char* fault : {"fail_in:regmr", "fail_in@2:regmr"}) {
    SCOPED_TRACE(fault);
    set_faults(fault);
    Engine none;
    Result result = Engine::create(required(), &none);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE);
    EXPECT_NE(result.text().find(
                  "refuses a trial registration; its last warning: NET/TCPX_EMU : fail_in:regmr"),
              std::string::npos)
        << result.text();
  }
}
TEST_F(NetFault, ThereIsATrialRegistration) {
  engine = make_engine(required(), keep_lines());
  EXPECT_TRUE(logged("trial registration passed")) << lines();
}
// Not every plugin connects within one process; what it does between two counts.
TEST_F(NetFault, WithoutCommsWithinOneProcessThereIsNoTrialAndNoComplaint) {
  set_faults("fail_in:listen");
  engine = make_engine(required(), keep_lines());
  EXPECT_TRUE(logged("trial registration not made: no comms within one process")) << lines();
}
// A plugin whose receives land in GPU memory is not used for the host's unless that is asked for.
TEST_F(NetFault, APluginForDeviceMemoryIsNotUsedForTheHostsUnasked) {
  ASSERT_NE(::dlopen(TCPX_TEST_FAKE_CUDA_PATH, RTLD_NOW | RTLD_GLOBAL), nullptr) << ::dlerror();
  ::setenv("TCPX_EMU_DEVICE", "cuda", 1);
  Engine none;
  Result result = Engine::create(required(), &none);
  EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << "it is used";
  EXPECT_NE(result.text().find("net_memory=host"), std::string::npos) << result.text();
  engine = make_engine(allowed(), keep_lines());
  EXPECT_TRUE(logged("no net path: ")) << lines();
  engine = make_engine(required({{"net_memory", "host"}}), keep_lines());
  EXPECT_TRUE(logged("debug mode: no devmem")) << lines();
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

TEST_F(NetFault, WarningsOfThePluginAreToldAtEveryLogLevel) {
  start("fail_in@3:isend", allowed({{"log_level", "error"}}));
  ASSERT_TRUE(succeeded(meet()));
  (void)move(TCPX_WRITE);
  EXPECT_TRUE(eventually([&] { return logged("NET/TCPX_EMU : fail_in:isend"); })) << lines();
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
  }
  // It ends when the plugin is known to hang. Who was first: the cancel, or the peer's end.
  tcpx_code code = transfer.wait(kLong).code();
  EXPECT_TRUE(code == TCPX_CANCELLED || code == TCPX_PATH_UNAVAILABLE) << tcpx_code_name(code);
  EXPECT_EQ(transfer.cancel(Ms{100}).code(), TCPX_PATH_UNAVAILABLE);
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
// In set-up: the lane, stream and all, is in the hands of the plugin. Each a test, that is a
// process, of its own: ThreadSanitizer bears no probe beside the thread that hangs.
struct NetFaultHangInSetUp : NetFault {
  void expect_the_connect_to_end_in_time(const std::string& call) {
    start("hang_in:" + call, allowed());
    Stopwatch watch;
    Result result = meet();
    EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
    EXPECT_NE(result.text().find("the net plugin hangs"), std::string::npos) << result.text();
    Stopwatch end;
    engine.destroy();
    EXPECT_LT(end.elapsed(), kConnectTimeout + kTicks);
  }
};
TEST_F(NetFaultHangInSetUp, InListenEndsTheConnectInTime) {
  expect_the_connect_to_end_in_time("listen");
}
TEST_F(NetFaultHangInSetUp, InConnectEndsTheConnectInTime) {
  expect_the_connect_to_end_in_time("connect");
}
TEST_F(NetFaultHangInSetUp, InAcceptEndsTheConnectInTime) {
  expect_the_connect_to_end_in_time("accept");
}
// What is not a fence once is none after the peer was forgotten: the thread is still in the call.
TEST_F(NetFault, DisconnectDoesNotMakeAHangingPluginHarmless) {
  start("hang_in@2:irecv", allowed());
  Local other = make_local(engine, kBytes, kReadWrite, 3);
  ASSERT_TRUE(succeeded(meet()));
  ASSERT_TRUE(succeeded(post(TCPX_READ)));
  ASSERT_TRUE(eventually([&] { return fired(); })) << "the call that hangs was not reached";
  ASSERT_EQ(engine.disconnect(id).code(), TCPX_DEADLINE);
  for (tcpx_region region : {local.region, other.region}) {
    Result result = engine.deregister(region);
    EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
    EXPECT_NE(result.text().find("do not free"), std::string::npos) << result.text();
  }
}
// On every lane, and all of them together take no longer than one, whoever closes first.
TEST_F(NetFault, HangInCloseHoldsUpNobody) {
  start("hang_in:close", allowed({{"lanes", "4"}}));
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
  Stopwatch watch;
  EXPECT_EQ(engine.disconnect(id).code(), TCPX_DEADLINE) << "it hangs";
  engine.destroy();
  EXPECT_LT(watch.elapsed(), kConnectTimeout + kTicks);
}
TEST_F(NetFault, HangInCloseOnEveryLaneTakesTheTimeOfOne) {
  start("hang_in:close", allowed({{"lanes", "4"}}));
  ASSERT_TRUE(succeeded(meet()));
  expect_both_ways_work("net");
  peer->freeze();  // so that no lane is closed by what the peer does
  Stopwatch watch;
  EXPECT_EQ(engine.disconnect(id).code(), TCPX_DEADLINE) << "it hangs";
  EXPECT_LT(watch.elapsed(), kGoodbye + kConnectTimeout + kTicks);
}

}  // namespace
}  // namespace tcpx::test
