// An engine under test and, instead of a peer's engine, bare lanes that the test speaks for.
#pragma once

#include <memory>

#include "fault_fixture.h"
#include "raw_client.h"

namespace tcpx::test {

class RawLanes : public ::testing::Test {
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
  // Returns the second lane.
  std::unique_ptr<RawClient> start_with_two_lanes(const Options& options) {
    start(merged(options, {{"lanes", "2"}}));
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

}  // namespace tcpx::test
