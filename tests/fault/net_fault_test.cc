// What a user of the net path sees when bytes do not arrive as they should, or a lane's set-up does
// not go as it should: faults of the emulator's plan (docs/emulator.md).
#include "net_fault_fixture.h"

namespace tcpx::test {
namespace {

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
// Comms that are connected and carry nothing, in one direction: one side has seen all there is to
// see and waits for the other's word.
TEST_F(NetFault, AProofThatNeverArrivesFallsBackToTcp) {
  expect_fallback("data_hang@1", "were not set up in time");
}
TEST_F(NetFault, AProofThatNeverLeavesFallsBackToTcp) {
  expect_fallback("data_hang@2", "were not set up in time");
}
// One lane has been set up, the other has not, and then its stream breaks: the first is enough.
TEST_F(NetFault, ALaneLostInItsSetUpDoesNotKeepThePeerConnecting) {
  ::setenv("TCPX_EMU_DEVICES", "2", 1);
  start("steering_silent,dev=1", required({{"lanes", "2"}}));
  ASSERT_TRUE(succeeded(engine.connect(peer->info(), &id)));
  tcpx_peer_info info{};
  ASSERT_TRUE(eventually([&] { return engine.peer_info(id, &info).ok() && info.lanes == 2; }));
  std::this_thread::sleep_for(patience(150));  // for the first to be set up
  ASSERT_TRUE(engine.peer_wait(id, Ms{0}).in_progress());
  std::vector<int> streams = sockets_to(listening_port(peer->info()));
  ASSERT_EQ(streams.size(), 2u);
  ::shutdown(streams[1], SHUT_RDWR);
  ASSERT_TRUE(succeeded(engine.peer_wait(id, kLong)));
  ASSERT_TRUE(succeeded(engine.peer_info(id, &info)));
  EXPECT_EQ(info.lanes, 1u);
  expect_both_ways_work("net");
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

}  // namespace
}  // namespace tcpx::test
