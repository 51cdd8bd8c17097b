// One peer's crash (SIGKILL) or stall (SIGSTOP) in every phase ends only its own transfers, with
// the right code, in time, and leaves nothing behind.
#include <csignal>
#include <set>

#include "../support/ports.h"
#include "fault_fixture.h"
#include "raw_client.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kHuge = smaller_if_sanitized<uint64_t>(1 << 30, 256 << 20);

class PeerDeath : public Fault, public ::testing::WithParamInterface<int> {
 protected:
  bool killed() const { return GetParam() == SIGKILL; }
  tcpx_code expected() const { return killed() ? TCPX_PEER_DISCONNECTED : TCPX_PEER_TIMEOUT; }
  void strike(Peer& program) {
    if (killed())
      program.kill();
    else
      program.freeze();
  }
  // Forgets the peer; then fds and threads are what they were before it came.
  void expect_nothing_left(tcpx_peer peer, const Holdings& before) {
    Stopwatch watch;
    EXPECT_TRUE(succeeded(engine.disconnect(peer)));
    EXPECT_LT(watch.elapsed(), kNoticed) << "goodbye to a dead peer is bounded";
    EXPECT_TRUE(before.restored()) << before.now();
  }
  Transfer prepare(tcpx_peer peer, tcpx_op op, const Local& local, const tcpx_remote_region& remote,
                   uint64_t length) {
    Transfer transfer;
    EXPECT_TRUE(succeeded(
        engine.prepare(peer, op, {{local.region, 0, length}}, {{&remote, 0, length}}, &transfer)));
    return transfer;
  }
  // A peer process with a huge sparse region "m".
  struct Victim {
    Peer program;
    tcpx_remote_region memory{};
    explicit Victim(const Options& options) {
      program.create(options);
      memory = program.memory("m", kHuge, kReadWrite, 0, "sparse");
    }
  };

  void mid_transfer_as_target(tcpx_op op) {
    until_under_way([&](bool* met) { strike_midway(op, met); });
  }
  // *met: neither of the two transfers was done before the peer was struck.
  void strike_midway(tcpx_op op, bool* met) {
    Victim victim(fault_options({{"lanes", "2"}}));
    Local local = make_local(engine, kHuge, 0, 0, "sparse");
    Holdings before;
    tcpx_peer peer = connect(victim.program.info());
    {
      Transfer first = prepare(peer, op, local, victim.memory, kHuge);
      Transfer second = prepare(peer, op, local, victim.memory, kHuge);
      ASSERT_TRUE(succeeded(first.post(Ms{60'000})));
      ASSERT_TRUE(succeeded(second.post_notify("never", Ms{60'000})));
      std::this_thread::sleep_for(Ms{20});
      strike(victim.program);
      Stopwatch watch;
      expect_good_peer_works();
      tcpx_code first_code = first.wait(kLong).code(), second_code = second.wait(kLong).code();
      *met = first_code != TCPX_OK && second_code != TCPX_OK;
      if (*met) {
        EXPECT_EQ(first_code, expected()) << first.error();
        EXPECT_EQ(second_code, expected());
        EXPECT_LT(watch.elapsed(), kNoticed);
        EXPECT_EQ(first.poll().code(), expected()) << "ended once, told the same";
        EXPECT_NE(first.error(), "");
        EXPECT_EQ(first.receipt().result, expected());
        EXPECT_EQ(state_of(peer), expected());
        EXPECT_EQ(first.post().code(), expected()) << "an old handle fails cleanly";
      }
    }
    expect_nothing_left(peer, before);
    EXPECT_TRUE(succeeded(engine.deregister(local.region)));
  }

  void strike_while_threads_wait(bool* met) {
    Victim victim(fault_options());
    Local local = make_local(engine, kHuge, 0, 0, "sparse");
    tcpx_peer peer = connect(victim.program.info());
    std::atomic<int> posted{0}, right{0}, over{0};
    std::vector<std::thread> waiters;
    for (int i = 0; i < 4; ++i)
      waiters.emplace_back([&, i] {
        Transfer transfer =
            prepare(peer, i % 2 ? TCPX_READ : TCPX_WRITE, local, victim.memory, kHuge);
        if (!transfer.post(Ms{60'000})) return;
        ++posted;
        tcpx_code code = transfer.wait(Ms{60'000}).code();
        if (code == expected()) ++right;
        if (code == TCPX_OK) ++over;
      });
    EXPECT_TRUE(eventually([&] { return posted == 4; }));
    std::this_thread::sleep_for(Ms{30});  // from there into the wait
    strike(victim.program);
    Stopwatch watch;
    for (auto& waiter : waiters) waiter.join();
    EXPECT_EQ(right + over, 4);
    *met = over == 0;
    EXPECT_LT(watch.elapsed(), kNoticed);
    EXPECT_TRUE(succeeded(engine.disconnect(peer)));
    EXPECT_TRUE(succeeded(engine.deregister(local.region)));
  }

  void mid_transfer_as_initiator(const char* op) {
    Local local = make_local(engine, 64 << 20, kReadWrite, 0, "sparse");
    Bytes description;
    ASSERT_TRUE(succeeded(engine.export_region(local.region, &description)));
    Victim victim(fault_options({{"lanes", "2"}}));
    Holdings before;
    std::string us = victim.program("connect {}", to_hex(engine.connection_info()));
    victim.program("import us {}", to_hex(description));
    victim.program("prepare t {} {} m 0 us 0 {}", op, us, 64 << 20);
    victim.program("wait_peer {} 10000", us);
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(engine.accept(&peer, kLong)));
    victim.program("loop t 0");
    std::this_thread::sleep_for(Ms{50});
    strike(victim.program);
    Stopwatch watch;
    expect_good_peer_works();
    EXPECT_TRUE(eventually([&] { return state_of(peer) == expected(); }, kNoticed))
        << tcpx_code_name(state_of(peer));
    expect_nothing_left(peer, before);
    watch = {};
    EXPECT_TRUE(succeeded(engine.deregister(local.region)));
    EXPECT_LT(watch.elapsed(), patience(500));
  }
};

TEST_P(PeerDeath, BeforeHello) {
  Victim victim(fault_options());
  Bytes info = victim.program.info();
  strike(victim.program);  // stopped: the kernel still completes the connection, nobody answers
  Holdings before;
  tcpx_peer peer = 0;
  Stopwatch watch;
  ASSERT_TRUE(succeeded(engine.connect(info, &peer)));
  {
    Transfer transfer;
    Result result = engine.prepare(peer, TCPX_WRITE, {{own.region, 0, 1000}},
                                   {{&victim.memory, 0, 1000}}, &transfer);
    if (result) result = transfer.post(Ms{60'000});
    expect_good_peer_works();
    // A refused connection may be known before the transfer is prepared or posted.
    tcpx_code code = result ? transfer.wait(kLong).code() : result.code();
    EXPECT_TRUE(code == TCPX_CONNECT_FAILED || code == TCPX_PEER_TIMEOUT) << tcpx_code_name(code);
    EXPECT_EQ(engine.peer_wait(peer, Ms{0}).code(), code);
    EXPECT_LT(watch.elapsed(), patience(5'000));
  }
  expect_nothing_left(peer, before);
}

TEST_P(PeerDeath, InHandshakeOfTheServer) {
  RawListener listener;
  Engine keyed = make_engine(fault_options({{"auth_key", "a-shared-key-long-enough-01234567"}}));
  Local local = make_local(keyed, 1000, 0, 1);
  Holdings before;
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(keyed.connect_address(listener.address(), &peer)));
  RawSocket socket = listener.accept();
  std::array<uint8_t, wire::kHelloBytes> hello{};
  ASSERT_TRUE(socket.receive(hello));
  socket.send(std::vector<uint8_t>{'T', 'C', 'P', 'C'});  // the start of a challenge
  if (killed()) {
    socket.close();
    listener.close();
  }
  Stopwatch watch;
  Result result = keyed.peer_wait(peer, kLong);
  EXPECT_TRUE(result.code() == TCPX_CONNECT_FAILED || result.code() == TCPX_PEER_TIMEOUT ||
              result.code() == TCPX_PEER_DISCONNECTED)
      << result.name();
  EXPECT_LT(watch.elapsed(), patience(5'000));
  ASSERT_TRUE(succeeded(keyed.disconnect(peer)));
  socket.close();
  EXPECT_TRUE(before.restored()) << before.now();
  keyed.destroy();
}

TEST_P(PeerDeath, InHandshakeOfTheClient) {
  Target target = Target::from_info(engine.connection_info());
  Holdings before;
  {
    RawClient half(target), challenged(target);
    std::array<uint8_t, wire::kHelloBytes> hello{};
    wire::encode(half.hello, hello);
    half.socket().send(std::span(hello).first(77));
    ASSERT_TRUE(challenged.send_hello() && challenged.receive_challenge());
    if (killed()) {
      half.socket().close();
      challenged.socket().close();
    } else {
      EXPECT_TRUE(half.closes());
      EXPECT_TRUE(challenged.closes());
    }
    expect_good_peer_works();
  }
  EXPECT_TRUE(before.restored()) << before.now();
  EXPECT_EQ(count("half_open"), 0u);
}

TEST_P(PeerDeath, Idle) {
  Victim victim(fault_options({{"lanes", "2"}}));
  Holdings before;
  tcpx_peer peer = connect(victim.program.info());
  {
    Transfer transfer = prepare(peer, TCPX_WRITE, own, victim.memory, kSmall);
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    std::this_thread::sleep_for(patience(300));  // past the keepalive: pings go to and fro
    EXPECT_EQ(state_of(peer), TCPX_OK) << "idle is not dead";
    strike(victim.program);
    EXPECT_TRUE(eventually([&] { return state_of(peer) == expected(); }, kNoticed))
        << tcpx_code_name(state_of(peer));
    EXPECT_TRUE(succeeded(transfer.poll())) << "what was done stays done";
    Stopwatch watch;
    Result late = transfer.post();
    if (late) late = transfer.wait(kLong);
    EXPECT_EQ(late.code(), expected());
    EXPECT_EQ(engine.notify(peer, "x", Ms{2'000}).code(), expected());
    EXPECT_LT(watch.elapsed(), patience(500)) << "known to be gone: told at once";
    EXPECT_EQ(engine.peer_wait(peer, Ms{0}).code(), expected());
  }
  expect_nothing_left(peer, before);
}

TEST_P(PeerDeath, MidWriteAsTarget) {
  mid_transfer_as_target(TCPX_WRITE);
}
TEST_P(PeerDeath, MidReadAsTarget) {
  mid_transfer_as_target(TCPX_READ);
}
TEST_P(PeerDeath, MidWriteAsInitiator) {
  mid_transfer_as_initiator("write");
}
TEST_P(PeerDeath, MidReadAsInitiator) {
  mid_transfer_as_initiator("read");
}

TEST_P(PeerDeath, WhileManyThreadsWaitWakesThemAll) {
  until_under_way([&](bool* met) { strike_while_threads_wait(met); });
}

INSTANTIATE_TEST_SUITE_P(Signals, PeerDeath, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& each) {
                           return each.param == SIGKILL ? "Killed" : "Stopped";
                         });

// ---- deadlines, before the peer itself is given up --------------------------------------------
class StoppedPeer : public Fault {
 protected:
  void SetUp() override {
    start(patient());
    victim = std::make_unique<Peer>();
    victim->create(patient());
    remote = victim->memory("m", kBytes, kReadWrite, 8);
    peer = connect(victim->info());
  }
  static Options patient() {
    return fault_options({{"peer_timeout", "30s"}, {"lane_timeout", "20s"}, {"lanes", "2"}});
  }
  static constexpr uint64_t kBytes = 32 << 20;
  std::unique_ptr<Peer> victim;
  tcpx_remote_region remote{};
  tcpx_peer peer = 0;
};

TEST_F(StoppedPeer, TransfersEndByTheirDeadlineAndLateBytesNeverLand) {
  Local local = make_local(engine, kBytes, 0, 9);
  for (tcpx_op op : {TCPX_READ, TCPX_WRITE}) {
    SCOPED_TRACE(op == TCPX_READ ? "READ" : "WRITE");
    victim->freeze();
    Transfer transfer;
    ASSERT_TRUE(succeeded(
        engine.prepare(peer, op, {{local.region, 0, kBytes}}, {{&remote, 0, kBytes}}, &transfer)));
    Stopwatch watch;
    ASSERT_TRUE(succeeded(transfer.post(Ms{300})));
    expect_good_peer_works();
    EXPECT_EQ(transfer.wait(kLong).code(), TCPX_DEADLINE);
    EXPECT_GE(watch.elapsed(), Ms{290});
    EXPECT_LT(watch.elapsed(), Ms{300} + patience(700));
    // The buffer is ours again, whatever the peer sends when it wakes up.
    Pattern sentinel(77, static_cast<uint64_t>(op));
    fill(*local.memory, 0, kBytes, sentinel, 0);
    victim->thaw();
    for (watch = {}; watch.elapsed() < Ms{500};)
      ASSERT_EQ(mismatch(*local.memory, 0, kBytes, sentinel, 0), -1) << "a late byte landed";
    // The peer was slow, not dead: the session works again. On the net path it may have been the
    // price of the fence: what a plugin has begun to send comes back only with its comm closed.
    if (std::getenv("TCPX_TEST_NET_PLUGIN") != nullptr && state_of(peer) != TCPX_OK) {
      EXPECT_EQ(state_of(peer), TCPX_PEER_TIMEOUT);
      peer = connect(victim->info());
    }
    Transfer again;
    ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, kBytes}},
                                         {{&remote, 0, kBytes}}, &again)));
    ASSERT_TRUE(succeeded(again.post(kLong)));
    ASSERT_TRUE(succeeded(again.wait(kLong))) << again.error();
    EXPECT_EQ(victim->check("m", 0, kBytes, 77, static_cast<uint64_t>(op), 0), "");
  }
  EXPECT_TRUE(succeeded(engine.deregister(local.region)));
}

// Longer than lane_timeout, shorter than peer_timeout: all lanes are silent, so none is worse than
// the others, and the transfer goes on when the peer does.
TEST_F(StoppedPeer, APauseShorterThanThePeerTimeoutOnlyDelays) {
  Options hasty = fault_options(
      {{"peer_timeout", "30s"}, {"lane_timeout", "300ms"}, {"keepalive", "100ms"}, {"lanes", "3"}});
  Engine client = make_engine(hasty);
  Local local = make_local(client, kBytes, 0, 9);
  tcpx_peer there = 0;
  ASSERT_TRUE(succeeded(client.connect(victim->info(), &there)));
  ASSERT_TRUE(succeeded(client.peer_wait(there, kLong)));
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    SCOPED_TRACE(op == TCPX_READ ? "READ" : "WRITE");
    Transfer transfer;
    ASSERT_TRUE(succeeded(
        client.prepare(there, op, {{local.region, 0, kBytes}}, {{&remote, 0, kBytes}}, &transfer)));
    for (int attempt = 0;; ++attempt) {  // on a busy machine it may be over before the pause
      ASSERT_LT(attempt, 20) << "the test needs a longer transfer";
      if (op == TCPX_READ) fill(*local.memory, 0, kBytes, Pattern(60), 0);
      if (op == TCPX_WRITE) {
        ASSERT_TRUE(victim->call("sentinel m 60 0").ok());
      }
      ASSERT_TRUE(succeeded(transfer.post_notify("paused", kLong)));
      std::this_thread::sleep_for(Ms{2});
      victim->freeze();
      if (transfer.wait(Ms{1'000}).in_progress()) break;
      victim->thaw();
      ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
      ASSERT_TRUE(victim->call("next 2000").ok());
    }
    victim->thaw();
    Stopwatch watch;
    ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    EXPECT_LT(watch.elapsed(), patience(2'000));
    EXPECT_EQ(victim->check("m", 0, kBytes, 9, 0, 0), "");
    EXPECT_EQ(mismatch(*local.memory, 0, kBytes, Pattern(9), 0), -1);
    EXPECT_TRUE(victim->call("next 2000").ok());
    EXPECT_EQ(victim->call("next 50").code, TCPX_IN_PROGRESS) << "notified twice";
  }
  client.destroy();
}

TEST_F(StoppedPeer, NotifyEndsByItsDeadline) {
  victim->freeze();
  Stopwatch watch;
  EXPECT_EQ(engine.notify(peer, "hello", Ms{200}).code(), TCPX_DEADLINE);
  EXPECT_LT(watch.elapsed(), Ms{200} + patience(700));
  victim->thaw();
  ASSERT_TRUE(succeeded(engine.notify(peer, "again", kLong)));
}

TEST_F(StoppedPeer, PostReturnsWithoutWaitingForData) {
  Local local = make_local(engine, kBytes, 0, 9);
  victim->freeze();
  Stopwatch watch;
  {
    std::vector<Transfer> many(20);
    for (Transfer& transfer : many) {
      ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, kBytes}},
                                           {{&remote, 0, kBytes}}, &transfer)));
      ASSERT_TRUE(succeeded(transfer.post(Ms{30'000})));
      EXPECT_TRUE(transfer.poll().in_progress());
    }
    EXPECT_LT(watch.elapsed(), patience(500));
  }
  EXPECT_LT(watch.elapsed(), patience(1'000)) << "release does not wait for the peer either";
  EXPECT_TRUE(succeeded(engine.deregister(local.region)));
}

// ---- coming back ------------------------------------------------------------------------------
TEST_F(Fault, ARestartedPeerIsANewGenerationAndWorks) {
  const std::string key = "a-shared-key-long-enough-01234567";
  Options keyed = fault_options({{"auth_key", key}});
  Engine client = make_engine(keyed);
  std::string port = OwnPorts().text();  // any of these in the first life, then that one
  Local local = make_local(client, kSmall, 0, 4);
  std::set<uint64_t> generations;
  std::set<std::string> engines;
  tcpx_remote_region old_region{};
  Transfer old_transfer;
  for (int life = 0; life < 3; ++life) {
    SCOPED_TRACE(life);
    ProcessTarget target(kSmall, merged({{"port_range", port}}, keyed));
    port = std::to_string(listening_port(target.program.info(), key));
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(client.connect_address("127.0.0.1:" + port, &peer)));
    ASSERT_TRUE(succeeded(client.peer_wait(peer, kLong)));
    tcpx_peer_info info{};
    ASSERT_TRUE(succeeded(client.peer_info(peer, &info)));
    EXPECT_TRUE(generations.insert(info.generation).second);
    EXPECT_TRUE(engines.insert(info.engine_id).second);
    if (life > 0) {
      EXPECT_FALSE(old_transfer.post().ok()) << "an old handle fails cleanly";
      Transfer stale;
      Result result =
          client.prepare(peer, TCPX_WRITE, {{local.region, 0, 10}}, {{&old_region, 0, 10}}, &stale);
      EXPECT_FALSE(result.ok()) << "so does a region of the earlier life";
    }
    Transfer transfer;
    ASSERT_TRUE(succeeded(client.prepare(peer, TCPX_WRITE, {{local.region, 0, kSmall}},
                                         {{&target.memory, 0, kSmall}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    EXPECT_EQ(target.program.check("m", 0, kSmall, 4, 0, 0), "");
    old_region = target.memory;
    old_transfer = std::move(transfer);
    target.program.kill();
    EXPECT_TRUE(eventually([&] {
      return client.peer_info(peer, &info).ok() && info.state == TCPX_PEER_DISCONNECTED;
    }));
  }
  old_transfer.release();
  client.destroy();
}

TEST_F(Fault, ManyDeathsLeakNoFdThreadOrMemory) {
  const int deaths = smaller_if_sanitized(12, 4);
  Local local = make_local(engine, 64 << 20, kReadWrite, 0, "sparse");
  std::memset(local.data(), 1, 64 << 20);
  Holdings before;
  uint64_t rss = 0;
  for (int i = 0; i < deaths; ++i) {
    if (i == deaths / 3) rss = rss_bytes();
    Peer victim;
    victim.create(fault_options({{"lanes", "4"}}));
    tcpx_remote_region remote = victim.memory("m", 64 << 20, kReadWrite, 0, "sparse");
    tcpx_peer peer = connect(victim.info());
    Transfer transfer;
    ASSERT_TRUE(succeeded(engine.prepare(peer, i % 2 ? TCPX_READ : TCPX_WRITE,
                                         {{local.region, 0, 64 << 20}}, {{&remote, 0, 64 << 20}},
                                         &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    victim.kill();
    ASSERT_FALSE(transfer.wait(kLong).in_progress());
    ASSERT_TRUE(succeeded(engine.disconnect(peer)));
  }
  EXPECT_TRUE(before.restored()) << before.now();
  if (!kSanitized) {
    EXPECT_LT(rss_bytes(), rss + (8 << 20)) << "memory grows with every lost peer";
  }
  EXPECT_TRUE(succeeded(engine.deregister(local.region)));
}

}  // namespace
}  // namespace tcpx::test
