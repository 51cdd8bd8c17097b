// What every fault test has: an engine under test, a good peer that must not notice the fault, and
// a check that nothing is left behind.
#pragma once

#include <gtest/gtest.h>

#include "../support/engines.h"
#include "../support/peer.h"
#include "../support/proc.h"
#include "../support/rounds.h"

namespace tcpx::test {

inline constexpr uint32_t kReadWrite = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;

// Short times, so that faults are noticed within a test; longer under sanitizers, where a peer that
// is merely slow must not look dead.
inline std::string time_option(int64_t ms) {
  return std::to_string(patience(ms).count()) + "ms";
}
inline Options fault_options(const Options& more = {}) {
  return merged(more, loopback_options({{"deadline", time_option(5'000)},
                                        {"connect_timeout", time_option(1'500)},
                                        {"handshake_timeout", time_option(600)},
                                        {"keepalive", time_option(200)},
                                        {"lane_timeout", time_option(600)},
                                        {"peer_timeout", time_option(1'200)}}));
}
inline constexpr Ms kPeerTimeout = patience(1'200);
// By when a dead or stopped peer must have been noticed: its timeout and some scheduling.
inline constexpr Ms kNoticed = patience(3'000);

// A peer process with one piece of memory "m" for reading and writing.
struct ProcessTarget {
  Peer program;
  tcpx_remote_region memory{};

  explicit ProcessTarget(uint64_t bytes, const Options& options = fault_options()) {
    program.create(options);
    memory = program.memory("m", bytes, kReadWrite, 2);
  }
};

class Fault : public ::testing::Test {
 protected:
  static constexpr uint64_t kSmall = 100'000;
  static constexpr uint64_t kLarge = 256 << 20;  // moves long enough to be hit in the middle

  void SetUp() override { start(fault_options()); }
  void TearDown() override {
    if (!engine) return;
    expect_good_peer_works();
    engine.destroy();
  }

  void start(const Options& options) {
    engine = make_engine(options);
    good = make_engine(fault_options());
    good_memory = make_local(good, kSmall, kReadWrite, 1);
    good_remote = describe(good, good_memory.region);
    own = make_local(engine, kSmall, kReadWrite, 3);
    ASSERT_TRUE(succeeded(engine.connect(good.connection_info(), &good_id)));
    ASSERT_TRUE(succeeded(engine.peer_wait(good_id, kLong)));
    expect_good_peer_works();
  }
  // WRITE and READ with the peer that has no fault, with fresh content.
  void expect_good_peer_works() {
    fill(*own.memory, 0, kSmall, Pattern(3, ++round_), 0);
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
      Transfer transfer;
      ASSERT_TRUE(succeeded(engine.prepare(good_id, op, {{own.region, 0, kSmall}},
                                           {{&good_remote, 0, kSmall}}, &transfer)));
      ASSERT_TRUE(succeeded(transfer.post()));
      ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    }
    ASSERT_EQ(mismatch(*good_memory.memory, 0, kSmall, Pattern(3, round_), 0), -1);
  }
  tcpx_peer connect(const Bytes& info) {
    tcpx_peer peer = 0;
    EXPECT_TRUE(succeeded(engine.connect(info, &peer)));
    EXPECT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
    return peer;
  }
  tcpx_code state_of(tcpx_peer peer) {
    tcpx_peer_info info{};
    Result result = engine.peer_info(peer, &info);
    return result ? info.state : result.code();
  }
  uint64_t count(const std::string& name) { return counter(engine, name); }
  // Counters are raised by the engine's own threads, so they are waited for.
  bool reaches(const std::string& name, uint64_t value) {
    return eventually([&] { return count(name) >= value; }, patience(3'000));
  }

  Local own, good_memory;
  Engine good, engine;
  tcpx_remote_region good_remote{};
  tcpx_peer good_id = 0;

 private:
  uint64_t round_ = 0;
};

}  // namespace tcpx::test
