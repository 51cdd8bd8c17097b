// Where net is required: a lane that cannot have it ends the session, a lane that just died does
// not, whichever of its signs is seen first.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "../support/env.h"
#include "core_pair.h"

namespace tcpx {
namespace {

struct Refusal : testing::Test {
  CorePair pair{4096};
  std::shared_ptr<Peer> peer;
  std::vector<PeerLane*> lanes;

  Refusal() {
    auto transfer = pair.prepare(TCPX_WRITE);
    peer = transfer->peer;
    EXPECT_TRUE(peer->wait_connected(now_ns() + 10 * kSecond).ok());
    for (PeerLane* lane : peer->lanes()) {
      uint64_t before = lane->pings().bytes_heard();
      lane->pings().ask();
      EXPECT_TRUE(test::eventually([&] { return lane->pings().bytes_heard() > before; }))
          << "the target has both lanes";
    }
    pair.source->shared().path_wish = {"require_path is net", wire::kNetPath};  // from now on
    for (PeerLane* lane : peer->lanes()) lanes.push_back(lane);
    EXPECT_EQ(lanes.size(), 2u);
  }
  // The lane's carrier says that it is gone, as when the peer has died or its stream has broken.
  void comm_dies(PeerLane* lane) {
    settles(lane, {lane_error(TCPX_PATH_UNAVAILABLE, "comm"), true});
  }
  void settles(PeerLane* lane, const PathRefusal& refusal) {
    lane->in_loop([&] { peer->lane_settled(*lane, refusal); });
  }
  void stream_ends(PeerLane* lane) {
    Status broken = lane_error(TCPX_PEER_DISCONNECTED, "stream");
    EXPECT_TRUE(lane->loop().wait_for(lane->ask_shut(broken, peer->lanes().kept()), kNever));
  }
  Status end_after(std::chrono::milliseconds time) {
    std::this_thread::sleep_for(time);
    return peer->over() ? peer->end_status() : Status();
  }
};

TEST_F(Refusal, ALaneThatDiedIsNoneHoweverItShowed) {
  comm_dies(lanes[1]);
  stream_ends(lanes[1]);
  Status end = end_after(std::chrono::milliseconds(600));
  EXPECT_TRUE(end.ok()) << end.to_string();
  EXPECT_EQ(peer->live_lanes(), 1u);
}

TEST_F(Refusal, OneThatOnlyLostItsPathIs) {
  comm_dies(lanes[1]);
  EXPECT_EQ(end_after(std::chrono::milliseconds(1000)).code(), TCPX_PATH_UNAVAILABLE);
}

// Whatever the code of its status.
TEST_F(Refusal, OneThatIsCertainIsNotTakenForADeath) {
  settles(lanes[1], {lane_error(TCPX_PEER_DISCONNECTED, "no such device"), false});
  stream_ends(lanes[1]);
  EXPECT_EQ(end_after(std::chrono::milliseconds(1000)).code(), TCPX_PATH_UNAVAILABLE);
}

// Of two lanes that showed the same, one has died.
TEST_F(Refusal, TheOtherLanesCauseStays) {
  comm_dies(lanes[0]);
  comm_dies(lanes[1]);
  stream_ends(lanes[0]);
  EXPECT_EQ(end_after(std::chrono::milliseconds(1000)).code(), TCPX_PATH_UNAVAILABLE);
}

}  // namespace
}  // namespace tcpx
