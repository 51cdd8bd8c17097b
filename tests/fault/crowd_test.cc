// Many peers at once, many after each other, and ends that differ in their limits.
#include "fault_fixture.h"
#include "raw_client.h"

namespace tcpx::test {
namespace {

// More than may be half open at once come in the same moment: all get in, those that are turned
// away at first by coming again.
TEST(Crowd, ABurstOfConnectsLargerThanMaxHalfOpenGetsIn) {
  Engine target = make_engine(fault_options({{"max_half_open", "2"}}));
  std::vector<Engine> crowd;
  std::vector<tcpx_peer> peers(12);
  for (size_t i = 0; i < peers.size(); ++i)
    crowd.push_back(
        make_engine(fault_options({{"lanes", "1"}, {"connect_timeout", time_option(10'000)}})));
  for (size_t i = 0; i < peers.size(); ++i)
    ASSERT_TRUE(succeeded(crowd[i].connect(target.connection_info(), &peers[i])));
  for (size_t i = 0; i < peers.size(); ++i)
    EXPECT_TRUE(succeeded(crowd[i].peer_wait(peers[i], kLong))) << "number " << i;
}

// Strangers that say nothing take all places again and again; who has the key gets in between.
TEST(Crowd, AnEngineGetsInBetweenStrangersThatHoldAllPlaces) {
  Engine target = make_engine(fault_options({{"max_half_open", "4"}}));
  std::vector<RawSocket> strangers;
  for (int i = 0; i < 4; ++i)
    strangers.emplace_back(Target::from_info(target.connection_info()).port);
  EXPECT_TRUE(eventually([&] { return counter(target, "half_open") == 4; }));
  Engine client = make_engine(fault_options({{"connect_timeout", time_option(5'000)}}));
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(client.connect(target.connection_info(), &peer)));
  EXPECT_TRUE(succeeded(client.peer_wait(peer, kLong)));
}

TEST(Crowd, PeersThatWentDoNotCountAgainstMaxPeers) {
  Engine target = make_engine(fault_options({{"max_peers", "3"}}));
  for (int i = 0; i < 10; ++i) {
    Engine client = make_engine(fault_options({{"lanes", "1"}}));
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(client.connect(target.connection_info(), &peer)));
    ASSERT_TRUE(succeeded(client.peer_wait(peer, kLong))) << "number " << i;
  }
  std::vector<Engine> living;
  for (int i = 0; i < 4; ++i) {
    living.push_back(make_engine(fault_options({{"lanes", "1"}})));
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(living.back().connect(target.connection_info(), &peer)));
    tcpx_code expected = i < 3 ? TCPX_OK : TCPX_LIMIT;
    EXPECT_EQ(living.back().peer_wait(peer, kLong).code(), expected) << "number " << i;
  }
}

// Few applications ask who arrived. What is kept for those that do has an end, and names nobody who
// was forgotten since.
TEST(Crowd, PeersThatWereForgottenAreNotHandedOutByAccept) {
  Engine target = make_engine(fault_options());
  Engine client = make_engine(fault_options({{"lanes", "1"}}));
  constexpr int kMany = 400;
  for (int i = 0; i < kMany; ++i) {
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(client.connect(target.connection_info(), &peer)));
    ASSERT_TRUE(succeeded(client.peer_wait(peer, kLong)));
    ASSERT_TRUE(succeeded(client.disconnect(peer)));
  }
  int handed = 0;
  for (tcpx_peer peer; target.accept(&peer, Ms{50}); ++handed) {
    tcpx_peer_info info{};
    EXPECT_TRUE(succeeded(target.peer_info(peer, &info)));
  }
  EXPECT_GT(handed, 0);
  EXPECT_LT(handed, kMany);
}

TEST(Crowd, ANotificationLongerThanThePeerTakesIsRefusedAndTheSessionLives) {
  Engine small = make_engine(fault_options({{"max_notify_bytes", "1000"}}));
  Engine large = make_engine(fault_options({{"max_notify_bytes", "64M"}}));
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(large.connect(small.connection_info(), &peer)));
  ASSERT_TRUE(succeeded(large.peer_wait(peer, kLong)));
  for (size_t length : {size_t{1001}, size_t{20} << 20}) {
    Result result = large.notify(peer, std::string(length, 'z'), kLong);
    EXPECT_EQ(result.code(), TCPX_LIMIT) << result.text();
    EXPECT_NE(result.text().find("max_notify_bytes"), std::string::npos) << result.text();
  }
  EXPECT_TRUE(succeeded(large.notify(peer, std::string(1000, 'y'), kLong)));
  Notification arrived;
  ASSERT_TRUE(succeeded(small.next_notification(&arrived, kLong)));
  EXPECT_EQ(arrived.bytes.size(), 1000u);
}

// Sent and forgotten, then the peer is: what was said before is delivered before. Connects first if
// `waits`. *gave_up: the goodbye was not patient enough, and said so.
void expect_delivered_before_goodbye(bool waits, std::atomic<bool>* gave_up) {
  Engine target = make_engine(fault_options());
  Engine client = make_engine(fault_options(), [&, shown = log_to_stderr()](tcpx_log_level level,
                                                                            const char* line) {
    if (shown) shown(level, line);
    if (std::string_view(line).find("notifications that nobody waits for may not have arrived") !=
        std::string_view::npos)
      *gave_up = true;
  });
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(client.connect(target.connection_info(), &peer)));
  if (waits) {
    ASSERT_TRUE(succeeded(client.peer_wait(peer, kLong)));
  }
  for (int i = 0; i < 20; ++i) {
    tcpx_code code = client.notify(peer, "n" + std::to_string(i), Ms{0}).code();
    EXPECT_TRUE(code == TCPX_DEADLINE || code == TCPX_OK) << tcpx_code_name(code);
  }
  ASSERT_TRUE(succeeded(client.disconnect(peer)));
  if (*gave_up) return;
  for (int i = 0; i < 20; ++i) {
    Notification arrived;
    ASSERT_TRUE(succeeded(target.next_notification(&arrived, patience(1'000)))) << "number " << i;
  }
}

// The goodbye is patient for half a second. On a busy machine a connection may not be there by
// then: the log says what may be lost, and the round has shown nothing.
TEST(Crowd, NotificationsThatNobodyWaitsForArriveBeforeTheGoodbye) {
  for (int round = 0; round < 5; ++round) {
    SCOPED_TRACE(round);
    std::atomic<bool> gave_up{true};
    for (int attempt = 0; gave_up; ++attempt) {
      ASSERT_LT(attempt, kAttempts) << "not one of the goodbyes was patient enough";
      gave_up = false;
      ASSERT_NO_FATAL_FAILURE(expect_delivered_before_goodbye(round % 2 != 0, &gave_up));
    }
  }
}

// The peer writes without a pause; between suspend and resume it is refused and gives up. Nothing
// that it had on its way lands in what the memory holds by then.
TEST(Crowd, NothingFromBeforeLandsInARegionThatIsResumed) {
  const uint64_t bytes = smaller_if_sanitized<uint64_t>(8 << 20, 2 << 20);
  Engine owner = make_engine(fault_options({{"lanes", "4"}}));
  Local memory = make_local(owner, bytes, kReadWrite, 5);
  Peer writer;
  writer.create(fault_options({{"lanes", "4"}}));
  writer.memory("src", bytes, 0, 6);
  std::string there = writer("connect {}", to_hex(owner.connection_info()));
  writer("wait_peer {} 5000", there);
  Bytes description;
  ASSERT_TRUE(succeeded(owner.export_region(memory.region, &description)));
  writer("import r {}", to_hex(description));
  for (int round = 0; round < 10; ++round) {
    writer("prepare t{} write {} src 0 r 0 {}", round, there, bytes);
    writer("loop t{} 6", round);
    std::this_thread::sleep_for(Ms{5 + round});
    auto refusals = [&] {
      return counter(owner, "rejected_regions") + counter(owner, "stale_frames");
    };
    uint64_t before = refusals();
    ASSERT_TRUE(succeeded(owner.suspend(memory.region)));
    Pattern sentinel(90, static_cast<uint64_t>(round));
    fill(*memory.memory, 0, bytes, sentinel, 0);
    ASSERT_TRUE(eventually([&] { return refusals() > before; }, kLong)) << "it writes on and on";
    ASSERT_TRUE(succeeded(owner.resume(memory.region)));
    for (Stopwatch watch; watch.elapsed() < Ms{50};)
      ASSERT_EQ(mismatch(*memory.memory, 0, bytes, sentinel, 0), -1) << "round " << round;
    writer("stop t{}", round);
  }
}

// A peer that was refused and then stopped: nobody knows what it has on its way, and all of that is
// refused when it comes. What it posts when it has heard of the resume is served.
TEST(Crowd, ARegionUsedByAPeerThatIsStoppedComesBackWithoutWhatItHadOnItsWay) {
  const uint64_t bytes = smaller_if_sanitized<uint64_t>(32 << 20, 8 << 20);
  Options patient = fault_options({{"peer_timeout", "30s"}, {"lane_timeout", "20s"}});
  Engine owner = make_engine(patient);
  Local memory = make_local(owner, bytes, kReadWrite, 5);
  Peer writer;
  writer.create(patient);
  writer.memory("src", bytes, 0, 6);
  std::string there = writer("connect {}", to_hex(owner.connection_info()));
  writer("wait_peer {} 5000", there);
  Bytes description;
  ASSERT_TRUE(succeeded(owner.export_region(memory.region, &description)));
  writer("import r {}", to_hex(description));
  writer("prepare t write {} src 0 r 0 {}", there, bytes);
  Reply ended;
  for (uint64_t round = 0; round < 20 && ended.ok(); ++round) {  // until it was under way
    writer("post t 60000 none");
    writer.freeze();
    ASSERT_TRUE(succeeded(owner.suspend(memory.region)));
    Pattern sentinel(91, round);
    fill(*memory.memory, 0, bytes, sentinel, 0);
    Stopwatch watch;
    ASSERT_TRUE(succeeded(owner.resume(memory.region)));
    EXPECT_LT(watch.elapsed(), patience(2'000));
    writer.thaw();
    ended = writer.call("wait t 60000");
    EXPECT_EQ(mismatch(*memory.memory, 0, bytes, sentinel, 0), -1) << "what was on its way landed";
  }
  EXPECT_EQ(ended.code, TCPX_STALE_REGION) << ended.text;
  EXPECT_TRUE(eventually([&] {
    writer("post t 60000 none");
    return writer.call("wait t 60000").ok();
  }));
}

// A cancel that waits for a stopped peer ends when the peer does.
TEST(Crowd, ACancelEndsWhenItsPeerDies) {
  ProcessTarget target(256 << 20, fault_options({{"require_path", "tcp"}}));
  Engine engine = make_engine(
      fault_options({{"require_path", "tcp"}, {"peer_timeout", "30s"}, {"lane_timeout", "20s"}}));
  Local local = make_local(engine, 256 << 20, 0, 1);
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(engine.connect(target.program.info(), &peer)));
  ASSERT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
  target.program.freeze();
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{local.region, 0, 256 << 20}},
                                       {{&target.memory, 0, 256 << 20}}, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post(kLong)));
  std::thread killer([&] {
    std::this_thread::sleep_for(Ms{300});
    target.program.kill();
  });
  Stopwatch watch;
  Result result = transfer.cancel(Ms{20'000});
  EXPECT_LT(watch.elapsed(), patience(3'000)) << result.text();
  killer.join();
}

}  // namespace
}  // namespace tcpx::test
