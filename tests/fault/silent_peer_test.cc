// A peer that is authentic and alive but says nothing, or not all of it: what may be concluded from
// its silence, and what not.
#include "raw_lanes.h"

namespace tcpx::test {
namespace {

using wire::FrameType;

class SilentPeer : public RawLanes {
 protected:
  // Lanes are given up soon, the peer is not. Returns the second lane.
  std::unique_ptr<RawClient> start_with_two_lanes() {
    return RawLanes::start_with_two_lanes({{"keepalive", time_option(50)},
                                           {"lane_timeout", time_option(200)},
                                           {"peer_timeout", time_option(20'000)}});
  }
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
