// Cancel, deregister and release are fences: when they return, the caller owns the memory, at once.
// The tests take it at its word: they fill the memory and watch it.
#include <csignal>

#include "fault_fixture.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = 12 << 20;  // less is through before a fence can come

constexpr uint64_t kFence = 0xfe;  // iteration of the patterns that come after a fence

// Owns the memory from now on: fills it and sees whether anything else writes there.
void expect_ours(Memory& memory, uint64_t seed, Ms time) {
  Pattern sentinel(seed, kFence);
  fill(memory, 0, memory.size(), sentinel, 0);
  Stopwatch watch;
  do {
    int64_t bad = mismatch(memory, 0, memory.size(), sentinel, 0);
    ASSERT_EQ(bad, -1) << "a foreign byte landed " << watch.elapsed().count() << " ms later";
  } while (watch.elapsed() < time);
}
// No word of `memory` may be the sentinel's: nobody read the source after it was filled with it.
void expect_no_trace(const Memory& memory, uint64_t seed) {
  ASSERT_EQ(first_trace(memory, Pattern(seed, kFence)), memory.size())
      << "memory that was given back was read";
}
Options lanes_and_chunks() {
  return fault_options({{"lanes", "3"}, {"chunk_bytes", "256K"}});
}

// Both ends in this process, so that nothing happens between the fence and the look.
class Fence : public ::testing::TestWithParam<tcpx_op> {
 protected:
  Pair pair{lanes_and_chunks()};
  Rng rng{42};
  int hits = 0;  // rounds that caught the transfer in the middle; without any a test proves nothing
  static constexpr int kRounds = smaller_if_sanitized(20, 6);

  void SetUp() override { pair.allocate(kBytes); }
  void expect_connection_works() {
    tcpx_peer_info info{};
    ASSERT_TRUE(succeeded(pair.a.peer_info(pair.b_at_a, &info)));
    EXPECT_EQ(info.lanes, 3u) << "a fence costs no lane";
    Local from = make_local(pair.a, kBytes, 0, 90), to = make_local(pair.b, kBytes, kReadWrite, 91);
    tcpx_remote_region remote = describe(pair.b, to.region);
    Transfer transfer;
    ASSERT_TRUE(succeeded(pair.a.prepare(pair.b_at_a, TCPX_WRITE, {{from.region, 0, kBytes}},
                                         {{&remote, 0, kBytes}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    EXPECT_EQ(mismatch(*to.memory, 0, kBytes, Pattern(90), 0), -1);
    ASSERT_TRUE(succeeded(pair.a.deregister(from.region)));
    ASSERT_TRUE(succeeded(pair.b.deregister(to.region)));
  }
  // A transfer may be through before the fence comes: then the round proves nothing.
  bool another_round(int round) const {
    return round < kRounds || (hits == 0 && round < 20 * kRounds);
  }
  void a_little_later() {
    auto end = Clock::now() + std::chrono::microseconds(rng.below(3'000));
    while (Clock::now() < end) {
    }
  }
};

TEST_P(Fence, CancelledTransferTouchesNeitherSideAnyMore) {
  for (int round = 0; another_round(round); ++round) {
    Transfer transfer = pair.prepare(GetParam(), kBytes);
    ASSERT_TRUE(succeeded(transfer.post()));
    a_little_later();
    ASSERT_TRUE(succeeded(transfer.cancel(kLong)));
    // OK means both sides: nothing is written to the destination, nothing read from the source.
    Local& destination = GetParam() == TCPX_READ ? pair.memory_a : pair.memory_b;
    Local& source = GetParam() == TCPX_READ ? pair.memory_b : pair.memory_a;
    fill(*source.memory, 0, kBytes, Pattern(1000 + round, kFence), 0);
    expect_no_trace(*destination.memory, 1000 + round);
    expect_ours(*destination.memory, 500 + round, round + 1 == kRounds ? Ms{1000} : Ms{10});
    tcpx_code code = transfer.poll().code();
    EXPECT_TRUE(code == TCPX_CANCELLED || code == TCPX_OK) << tcpx_code_name(code);
    hits += code == TCPX_CANCELLED;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(hits, 0);
  expect_connection_works();
}

TEST_P(Fence, LocalDeregisterEndsTheTransferAndFreesTheMemory) {
  for (int round = 0; another_round(round); ++round) {
    Transfer transfer = pair.prepare(GetParam(), kBytes);
    ASSERT_TRUE(succeeded(transfer.post()));
    a_little_later();
    Stopwatch watch;
    ASSERT_TRUE(succeeded(pair.a.deregister(pair.memory_a.region)));
    EXPECT_LT(watch.elapsed(), patience(500));
    expect_ours(*pair.memory_a.memory, 600 + round, round + 1 == kRounds ? Ms{1000} : Ms{10});
    tcpx_code code = transfer.wait(kLong).code();
    EXPECT_TRUE(code == TCPX_REGION_REVOKED || code == TCPX_OK) << tcpx_code_name(code);
    EXPECT_FALSE(transfer.post().ok()) << "its region is gone";
    hits += code == TCPX_REGION_REVOKED;
    if (GetParam() == TCPX_WRITE) expect_no_trace(*pair.memory_b.memory, 600 + round);
    if (HasFailure()) return;
    ASSERT_TRUE(succeeded(
        pair.a.register_memory(pair.memory_a.memory->address(), kBytes, 0, &pair.memory_a.region)));
  }
  EXPECT_GT(hits, 0);
  expect_connection_works();
}

TEST_P(Fence, DeregisterAtTheOwnerEndsTheTransferAndFreesTheMemory) {
  for (int round = 0; another_round(round); ++round) {
    Transfer transfer = pair.prepare(GetParam(), kBytes);
    ASSERT_TRUE(succeeded(transfer.post()));
    a_little_later();
    Stopwatch watch;
    ASSERT_TRUE(succeeded(pair.b.deregister(pair.memory_b.region)));
    EXPECT_LT(watch.elapsed(), patience(500));
    expect_ours(*pair.memory_b.memory, 700 + round, round + 1 == kRounds ? Ms{1000} : Ms{10});
    tcpx_code code = transfer.wait(kLong).code();
    EXPECT_TRUE(code == TCPX_REGION_REVOKED || code == TCPX_STALE_REGION || code == TCPX_OK)
        << tcpx_code_name(code);
    hits += code != TCPX_OK;
    if (GetParam() == TCPX_READ) expect_no_trace(*pair.memory_a.memory, 700 + round);
    if (HasFailure()) return;
    ASSERT_TRUE(succeeded(pair.b.register_memory(pair.memory_b.memory->address(), kBytes,
                                                 kReadWrite, &pair.memory_b.region)));
    pair.remote_b = describe(pair.b, pair.memory_b.region);
  }
  EXPECT_GT(hits, 0);
  expect_connection_works();
}

TEST_P(Fence, ReleaseInProgressThenUnmapIsSafe) {
  for (int round = 0; another_round(round); ++round) {
    auto memory = allocate(usual_memory(), kBytes);
    tcpx_region region = 0;
    ASSERT_TRUE(succeeded(pair.a.register_memory(memory->address(), kBytes, 0, &region)));
    Transfer transfer;
    ASSERT_TRUE(succeeded(pair.a.prepare(pair.b_at_a, GetParam(), {{region, 0, kBytes}},
                                         {{&pair.remote_b, 0, kBytes}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    a_little_later();
    hits += transfer.poll().in_progress();
    transfer.release();
    memory->give_back();  // whoever still uses it gets a fault or loses its lane
    ASSERT_TRUE(succeeded(pair.a.deregister(region)));
  }
  EXPECT_GT(hits, 0);
  expect_connection_works();
}

// The background writer: it owns each buffer from the moment the call returned, while other
// transfers of the same engine go on.
TEST_P(Fence, OthersGoOnWhileOneIsCancelled) {
  Local busy_a = make_local(pair.a, kBytes, 0, 80),
        busy_b = make_local(pair.b, kBytes, kReadWrite, 81);
  tcpx_remote_region busy = describe(pair.b, busy_b.region);
  std::atomic<bool> stop{false};
  std::atomic<int> bad{0}, rounds{0};
  std::thread traffic([&] {
    Transfer transfer;
    if (!pair.a.prepare(pair.b_at_a, TCPX_WRITE, {{busy_a.region, 0, kBytes}}, {{&busy, 0, kBytes}},
                        &transfer))
      ++bad;
    while (!stop && bad == 0) {
      fill(*busy_a.memory, 0, kBytes, Pattern(80, static_cast<uint64_t>(++rounds)), 0);
      if (!transfer.post() || !transfer.wait(kLong)) ++bad;
      if (mismatch(*busy_b.memory, 0, kBytes, Pattern(80, static_cast<uint64_t>(rounds)), 0) >= 0)
        ++bad;
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    Transfer transfer = pair.prepare(GetParam(), kBytes);
    if (!transfer.post()) ++bad;
    a_little_later();
    if (!transfer.cancel(kLong)) ++bad;
    Local& destination = GetParam() == TCPX_READ ? pair.memory_a : pair.memory_b;
    expect_ours(*destination.memory, 900 + round, Ms{5});
  }
  stop = true;
  traffic.join();
  EXPECT_EQ(bad, 0);
  EXPECT_GT(rounds, 0);
  EXPECT_TRUE(succeeded(pair.a.deregister(busy_a.region)));
  EXPECT_TRUE(succeeded(pair.b.deregister(busy_b.region)));
}

INSTANTIATE_TEST_SUITE_P(Ops, Fence, ::testing::Values(TCPX_READ, TCPX_WRITE),
                         [](const auto& each) {
                           return each.param == TCPX_READ ? "READ" : "WRITE";
                         });

// ---- with the peer stopped in the middle, and continued later ----------------------------------
class FenceStopped : public Fault {
 protected:
  static Options patient() {
    return merged({{"peer_timeout", strf("{}ms", patience(30'000).count())},
                   {"lane_timeout", strf("{}ms", patience(20'000).count())}},
                  lanes_and_chunks());
  }
  static constexpr uint64_t kRoom = 48 << 20;
  void SetUp() override { start(patient()); }

  // Takes the memory back from a transfer that is in progress. False: it was done all the same,
  // with what had arrived before the peer was stopped.
  bool fence(const char* how, Transfer& transfer, tcpx_region region) {
    if (*how == 'r') {
      transfer.release();
      return true;
    }
    bool by_cancel = *how == 'c';
    if (by_cancel) {
      tcpx_code code = transfer.cancel(Ms{100}).code();
      EXPECT_TRUE(code == TCPX_DEADLINE || code == TCPX_OK) << tcpx_code_name(code);
    } else {
      EXPECT_TRUE(succeeded(engine.deregister(region)));
    }
    tcpx_code code = by_cancel ? transfer.poll().code() : transfer.wait(patience(1'000)).code();
    if (code == TCPX_OK) return false;
    EXPECT_EQ(code, by_cancel ? TCPX_CANCELLED : TCPX_REGION_REVOKED) << tcpx_code_name(code);
    return true;
  }
  // One transfer, the peer stopped in the middle of it, and the fence. *met: it was the middle.
  void fence_midway(const char* how, tcpx_op op, Peer& victim, tcpx_peer peer,
                    const tcpx_remote_region& remote, bool* met) {
    Local local = make_local(engine, kRoom, 0, 2);
    Transfer transfer;
    ASSERT_TRUE(succeeded(
        engine.prepare(peer, op, {{local.region, 0, kRoom}}, {{&remote, 0, kRoom}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post(Ms{60'000})));
    std::this_thread::sleep_for(Ms{2});
    victim.freeze();
    bool fenced = transfer.poll().in_progress();
    if (fenced) {
      Stopwatch watch;
      *met = fence(how, transfer, local.region);
      EXPECT_LT(watch.elapsed(), patience(700));
      expect_ours(*local.memory, 30, Ms{30});
    }
    victim.thaw();
    if (fenced) expect_ours_and_unread(*local.memory, victim);
    transfer.release();
    if (!fenced || *how != 'd') {
      ASSERT_TRUE(succeeded(engine.deregister(local.region)));
    }
  }
  // The peer goes on, with half a chunk on its way: what is now in our memory must not follow it.
  void expect_ours_and_unread(Memory& memory, Peer& victim) {
    expect_ours(memory, 31, Ms{150});
    for (int seed : {30, 31}) {
      Reply reply = victim.call("no_trace m {} {}", seed, kFence);
      EXPECT_TRUE(reply.ok()) << "memory that was given back was read: " << reply.text;
    }
  }
};

TEST_F(FenceStopped, LocalMemoryIsOursThoughThePeerDidNotConfirm) {
  Peer victim;
  victim.create(patient());
  tcpx_remote_region remote = victim.memory("m", kRoom, kReadWrite, 1);
  tcpx_peer peer = connect(victim.info());
  for (const char* how : {"cancel", "deregister", "release"})
    for (tcpx_op op : {TCPX_READ, TCPX_WRITE}) {
      SCOPED_TRACE(strf("{} {}", how, op == TCPX_READ ? "READ" : "WRITE"));
      until_under_way([&](bool* met) { fence_midway(how, op, victim, peer, remote, met); });
      if (HasFailure()) return;
    }
  // The session has outlived all of it.
  fill(*own.memory, 0, kSmall, Pattern(70), 0);
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{own.region, 0, kSmall}},
                                       {{&remote, 0, kSmall}}, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  EXPECT_EQ(victim.check("m", 0, kSmall, 70, 0, 0), "");
}

TEST_F(FenceStopped, DeregisterAtTheOwnerDoesNotWaitForAStoppedInitiator) {
  Peer victim;
  victim.create(patient());
  victim.memory("m", kRoom, 0, 1);
  std::string us = victim("connect {}", to_hex(engine.connection_info()));
  victim("wait_peer {} 10000", us);
  for (const char* op : {"write", "read"}) {
    SCOPED_TRACE(op);
    Local local = make_local(engine, kRoom, kReadWrite, 2);
    Bytes description;
    ASSERT_TRUE(succeeded(engine.export_region(local.region, &description)));
    victim("import us {}", to_hex(description));
    victim("prepare {} {} {} m 0 us 0 {}", op, op, us, kRoom);
    victim("loop {} 2", op);
    std::this_thread::sleep_for(Ms{20});
    victim.freeze();
    Stopwatch watch;
    ASSERT_TRUE(succeeded(engine.deregister(local.region)));
    EXPECT_LT(watch.elapsed(), patience(500));
    expect_ours(*local.memory, 40, Ms{50});
    victim.thaw();
    expect_ours(*local.memory, 41, Ms{500});
    std::istringstream words(victim("stop {}", op));
    uint64_t rounds = 0;
    int code = 0;
    words >> rounds >> code;
    EXPECT_TRUE(code == TCPX_REGION_REVOKED || code == TCPX_STALE_REGION)
        << "the initiator is told: " << tcpx_code_name(static_cast<tcpx_code>(code));
  }
}

// The remote side of a cancelled WRITE, in another process.
TEST_F(FenceStopped, CancelledWriteDoesNotLandAtAnotherProcessLater) {
  Peer victim;
  victim.create(patient());
  tcpx_remote_region remote = victim.memory("m", kRoom, kReadWrite, 1);
  tcpx_peer peer = connect(victim.info());
  Local local = make_local(engine, kRoom, 0, 2);
  for (int round = 0; round < 5; ++round) {
    Transfer transfer;
    ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, kRoom}},
                                         {{&remote, 0, kRoom}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    std::this_thread::sleep_for(Ms{1 + round});
    ASSERT_TRUE(succeeded(transfer.cancel(kLong)));
    Reply reply = victim.call("sentinel m {} 100", round);
    ASSERT_TRUE(reply.ok()) << reply.text;
  }
  EXPECT_TRUE(succeeded(engine.deregister(local.region)));
}

}  // namespace
}  // namespace tcpx::test
