// Threads that cannot be had: an error that says so, and the process lives.
#include <gtest/gtest.h>

#include "../support/engines.h"
#include "../support/failing_threads.h"
#include "child.h"

namespace tcpx::test {
namespace {

Options net_options(const Options& more = {}) {
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
  ::setenv("TCPX_EMU_DEVICE", "host", 1);
  ::setenv("TCPX_EMU_SETUP_TIMEOUT_MS", "2000", 1);
  return merged(more, loopback_options({{"net_plugin", TCPX_TEST_EMULATOR_PATH},
                                        {"require_path", "net"},
                                        {"lanes", "1"},
                                        {"connect_timeout", "3s"}}));
}

bool says_so(const Result& result) {
  return result.code() == TCPX_LIMIT && result.text().find("cannot start") != std::string::npos &&
         result.text().find("pids.max") != std::string::npos;
}

TCPX_CHILD(engine_threads) {
  int refused = 0;
  for (bool failed = true; failed && complaints() == 0; refused += failed) {
    Engine engine;
    fail_threads(refused + 1);
    Result result = Engine::create(loopback_options({{"io_threads", "3"}}), &engine);
    failed = stop_failing_threads();
    if (failed && !says_so(result)) TCPX_COMPLAIN("{}: {}", result.name(), result.text());
    if (!failed) TCPX_HOLDS(result.ok());
  }
  TCPX_HOLDS(refused == 5);  // three loops, the service and the door
  return complaints();
}

TEST(NoThreads, AnEngineIsNotMadeAndSaysWhy) {
  EXPECT_EQ(run_child("engine_threads", patience(20'000)), "");
}

// A lane on the net path has a thread of its own; so has the emulator's set-up.
TCPX_CHILD(lane_threads) {
  Peer target;
  target.create(net_options());
  Bytes info = target.info();
  Engine engine = make_engine(net_options());
  tcpx_peer peer = 0;
  int refused = 0;
  for (bool failed = true; failed && complaints() == 0; refused += failed) {
    fail_threads(refused + 1);
    TCPX_HOLDS(engine.connect(info, &peer).ok());
    Result result = engine.peer_wait(peer, kLong);
    failed = stop_failing_threads();
    if (refused == 0 && !says_so(result)) TCPX_COMPLAIN("{}: {}", result.name(), result.text());
    if (failed == result.ok()) TCPX_COMPLAIN("round {}: {}", refused, result.text());
    TCPX_HOLDS(engine.disconnect(peer).ok());
  }
  TCPX_HOLDS(refused >= 1);
  // The same where they come to us. All of them: one of the session before may be first.
  fail_threads(1, 1000);
  std::string at_target = target("connect {}", to_hex(engine.connection_info()));
  TCPX_HOLDS(!target.call("wait_peer {} {}", at_target, kLong.count()).ok());
  TCPX_HOLDS(stop_failing_threads());
  TCPX_HOLDS(engine.connect(info, &peer).ok());
  TCPX_HOLDS(engine.peer_wait(peer, kLong).ok());
  return complaints();
}

TEST(NoThreads, ALaneIsNotMadeAndSaysWhy) {
  EXPECT_EQ(run_child("lane_threads", patience(30'000)), "");
}

// A connect that is given up needs a thread to end it: without one it waits for the next.
TCPX_CHILD(reaper_threads) {
  Peer target;
  target.create(net_options());
  Bytes info = target.info();
  ::setenv("TCPX_EMU_FAULTS", "connect_polls:1000000000", 1);
  Engine engine = make_engine(net_options({{"connect_timeout", "1s"}}));
  tcpx_peer peer = 0;
  TCPX_HOLDS(engine.connect(info, &peer).ok());
  TCPX_HOLDS(engine.peer_wait(peer, Ms{300}).in_progress());  // its threads are there
  fail_threads(1, 1000);
  TCPX_HOLDS(!engine.peer_wait(peer, kLong).ok());
  TCPX_HOLDS(engine.disconnect(peer).ok());
  TCPX_HOLDS(stop_failing_threads());
  engine.destroy();
  return complaints();
}

TEST(NoThreads, AConnectThatIsGivenUpWaits) {
  EXPECT_EQ(run_child("reaper_threads", patience(30'000)), "");
}

}  // namespace
}  // namespace tcpx::test
