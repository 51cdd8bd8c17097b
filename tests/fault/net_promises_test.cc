// The engine's promises where payload goes through a plugin: fences, any memory, no misuse of the
// plugin, no byte from strangers.
#include "net_fault_fixture.h"

namespace tcpx::test {
namespace {

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
