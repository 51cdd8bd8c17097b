// A peer that is authentic and alive but says nothing, or not all of it: what may be concluded from
// its silence, and what not.
#include "fault_fixture.h"
#include "raw_client.h"

namespace tcpx::test {
namespace {

using wire::FrameType;

class SilentPeer : public ::testing::Test {
 protected:
  void start(const Options& options) {
    engine = make_engine(fault_options(options));
    target = Target::from_info(engine.connection_info());
    first = std::make_unique<RawClient>(target);
  }
  std::unique_ptr<RawClient> join_lane(uint32_t index) {
    auto lane = std::make_unique<RawClient>(target);
    lane->hello = first->hello;
    lane->hello.kind = wire::HelloKind::kJoinLane;
    lane->hello.session = first->welcome.session;
    lane->hello.lane = index;
    EXPECT_TRUE(lane->handshake(first->session_key()));
    return lane;
  }
  // Lanes are given up soon, the peer is not. Returns the second lane.
  std::unique_ptr<RawClient> start_with_two_lanes() {
    start({{"lanes", "2"},
           {"keepalive", time_option(50)},
           {"lane_timeout", time_option(200)},
           {"peer_timeout", time_option(20'000)}});
    first->hello.lanes = 2;
    EXPECT_TRUE(first->handshake());
    return join_lane(1);
  }
  // As the peer would describe memory of its own.
  tcpx_remote_region region(uint64_t length) const {
    tcpx_remote_region out{};
    std::copy(first->hello.uid.begin(), first->hello.uid.end(), out.engine_id);
    out.id = (uint64_t{1} << 32) | 1;
    out.length = length;
    out.access = kReadWrite;
    return out;
  }

  Engine engine;
  Target target;
  std::unique_ptr<RawClient> first;
};

// All lanes are silent for longer than lane_timeout, as after a pause of the peer. Then one speaks
// first; the other is a moment later, not dead.
TEST_F(SilentPeer, ALaneIsNotGivenUpBecauseAnotherIsHeardFirstAfterAPause) {
  std::unique_ptr<RawClient> second = start_with_two_lanes();
  ASSERT_TRUE(first->ping());
  ASSERT_TRUE(second->ping());
  std::this_thread::sleep_for(patience(500));
  // Several looks of the engine long, and well below lane_timeout.
  for (Stopwatch watch; watch.elapsed() < patience(100);) EXPECT_FALSE(first->receive(Ms{10}));
  EXPECT_TRUE(second->ping()) << "the lane was closed";
  EXPECT_TRUE(first->ping());
  EXPECT_EQ(counter(engine, "lanes_lost"), 0u);
}

// The opposite: one that stays silent while the other speaks is given up.
TEST_F(SilentPeer, ALaneThatStaysSilentWhileAnotherSpeaksIsGivenUp) {
  std::unique_ptr<RawClient> second = start_with_two_lanes();
  ASSERT_TRUE(second->ping());
  EXPECT_TRUE(eventually(
      [&] {
        (void)first->receive(Ms{10});  // answers pings
        return counter(engine, "lanes_lost") == 1;
      },
      patience(3'000)));
  EXPECT_TRUE(first->ping());
}

// One chunk is refused, the answers to the others never come: the transfer has failed, and says so
// by its deadline and not by the end of the session.
TEST_F(SilentPeer, ATransferThatHasFailedInPartEndsByItsDeadline) {
  constexpr uint64_t kBytes = 2 << 20;
  start({{"lanes", "1"}, {"chunk_bytes", "256K"}, {"peer_timeout", time_option(20'000)}});
  ASSERT_TRUE(first->handshake());
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(engine.accept(&peer, kLong)));
  Local local = make_local(engine, kBytes, 0, 1);
  tcpx_remote_region remote = region(kBytes);
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_READ, {{local.region, 0, kBytes}},
                                       {{&remote, 0, kBytes}}, &transfer)));
  Stopwatch watch;
  ASSERT_TRUE(succeeded(transfer.post(patience(400))));
  auto asked = first->receive_type(FrameType::kRead);
  ASSERT_TRUE(asked.has_value());
  wire::Header refusal = frame_of(FrameType::kReadFailed, asked->header.transfer);
  refusal.chunk = asked->header.chunk;
  refusal.status = TCPX_STALE_REGION;
  ASSERT_TRUE(first->send(refusal));
  while (transfer.poll().in_progress() && watch.elapsed() < patience(4'000))
    (void)first->receive(Ms{10});  // answers pings: the session lives
  EXPECT_EQ(transfer.poll().code(), TCPX_STALE_REGION) << "the first cause stays";
  EXPECT_LT(watch.elapsed(), patience(1'500));
  EXPECT_TRUE(first->ping());
}

}  // namespace
}  // namespace tcpx::test
