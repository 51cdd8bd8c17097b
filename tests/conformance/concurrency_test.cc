// Many transfers, both directions, several peers, and an application that does nothing.
#include "fixture.h"

namespace tcpx::test {
namespace {

class Concurrency : public Conformance {};

TEST_P(Concurrency, ManyTransfersInFlightEachEndsWithItsOwnContent) {
  Remote& peer = connected_peer();
  const size_t count = 32;
  const uint64_t length = 200'000, room = count * length;
  LocalRegion& local = local_memory(room, 101);
  PeerRegion& remote = peer.memory(room, 102);
  std::vector<Transfer> transfers;
  std::vector<std::vector<Span>> spans;
  for (size_t i = 0; i < count; ++i) {
    spans.push_back({{i * length, (count - 1 - i) * length, length - i}});
    transfers.push_back(prepare(peer, kBothOps[i % 2], local, remote, spans.back()));
  }
  for (Transfer& transfer : transfers) ASSERT_TRUE(succeeded(transfer.post()));
  for (size_t i = count; i-- > 0;) {
    ASSERT_TRUE(succeeded(transfers[i].wait(kLong))) << i;
    apply(kBothOps[i % 2], local, remote, spans[i]);
  }
  expect_intact(local);
  peer.expect_intact(remote);
}

TEST_P(Concurrency, ThreadsMayShareOneEngine) {
  Remote& peer = connected_peer();
  const size_t threads = 4;
  const uint64_t length = 64 << 10;
  LocalRegion& local = local_memory(threads * length, 103);
  PeerRegion& remote = peer.memory(threads * length, 104);
  std::vector<std::thread> workers;
  std::atomic<int> failures{0};
  for (size_t i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      tcpx_local_piece mine{local.id, i * length, length};
      tcpx_remote_piece theirs{&remote.remote, i * length, length};
      for (int round = 0; round < 50; ++round) {
        Transfer transfer;
        Result result = engine.prepare(peer.id, TCPX_WRITE, {mine}, {theirs}, &transfer);
        if (result) result = transfer.post();
        if (result) result = transfer.wait(kLong);
        if (!result) ++failures;
      }
    });
  for (auto& worker : workers) worker.join();
  EXPECT_EQ(failures, 0);
  apply(TCPX_WRITE, local, remote, {{0, 0, threads * length}});
  peer.expect_intact(remote);
}

TEST_P(Concurrency, RepostMovesTheNewContentEveryTime) {
  Remote& peer = connected_peer();
  const uint64_t length = 30'000;
  LocalRegion& local = local_memory(length, 105);
  PeerRegion& remote = peer.memory(length, 106);
  Transfer out = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, length}});
  Transfer back = prepare(peer, TCPX_READ, local, remote, {{0, 0, length}});
  for (uint64_t round = 1; round <= 30; ++round) {
    SCOPED_TRACE(round);
    fill(*local.memory, 0, length, Pattern(105, round), 0);
    ASSERT_TRUE(succeeded(out.post()));
    ASSERT_TRUE(succeeded(out.wait(kLong)));
    ASSERT_EQ(peer.program.check(remote.name, 0, length, 105, round, 0), "");
    peer.program("fill {} 0 {} 106 {} 0", remote.name, length, round);
    ASSERT_TRUE(succeeded(back.post()));
    ASSERT_TRUE(succeeded(back.wait(kLong)));
    ASSERT_EQ(mismatch(*local.memory, 0, length, Pattern(106, round), 0), -1);
  }
}

// The peer came to know us only by our connecting to it; it uses that session for its own
// transfers while ours run.
TEST_P(Concurrency, BothSidesReadAndWriteEachOtherAtTheSameTime) {
  Remote& peer = connected_peer();
  const uint64_t length = smaller_if_sanitized<uint64_t>(1 << 20, 1 << 19);
  LocalRegion& source = local_memory(length, 111, kReadWrite);
  LocalRegion& sink = local_memory(length, 112, kReadWrite);
  LocalRegion& own = local_memory(length, 113);
  PeerRegion& theirs = peer.memory(length, 121);
  PeerRegion& for_loop = peer.memory(length, 122);
  PeerRegion& for_read = peer.memory(length, 123);

  std::string back = peer.program("accept 10000");
  for (auto [name, region] : {std::pair{"source", &source}, {"sink", &sink}}) {
    Bytes description;
    ASSERT_TRUE(succeeded(engine.export_region(region->id, &description)));
    peer.program("import {} {}", name, to_hex(description));
  }
  peer.program("prepare w write {} {} 0 sink 0 {}", back, for_loop.name, length);
  peer.program("prepare r read {} {} 0 source 0 {}", back, for_read.name, length);
  peer.program("loop w 130");
  peer.program("loop r 111");

  Transfer out = prepare(peer, TCPX_WRITE, own, theirs, {{0, 0, length}});
  Transfer in = prepare(peer, TCPX_READ, own, theirs, {{0, 0, length}});
  for (uint64_t round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    fill(*own.memory, 0, length, Pattern(113, round), 0);
    ASSERT_TRUE(succeeded(out.post()));
    ASSERT_TRUE(succeeded(out.wait(kLong)));
    fill(*own.memory, 0, length, Pattern(0, round), 0);
    ASSERT_TRUE(succeeded(in.post()));
    ASSERT_TRUE(succeeded(in.wait(kLong)));
    ASSERT_EQ(mismatch(*own.memory, 0, length, Pattern(113, round), 0), -1);
  }
  for (const char* id : {"w", "r"}) {
    std::istringstream words(peer.program("stop {}", id));
    uint64_t rounds = 0;
    int code = 0;
    words >> rounds >> code;
    EXPECT_EQ(code, TCPX_OK) << id;
    EXPECT_GT(rounds, 0u) << id;
    if (*id == 'w') {
      EXPECT_EQ(mismatch(*sink.memory, 0, length, Pattern(130, rounds - 1), 0), -1);
    }
  }
  expect_intact(source);
}

TEST_P(Concurrency, SeveralPeersAreServedAtOnce) {
  const size_t count = 4;
  const uint64_t length = 1 << 20;
  struct Work {
    Remote* peer;
    LocalRegion* local;
    PeerRegion* remote;
    Transfer out, in;
  };
  std::vector<Work> all;
  for (size_t i = 0; i < count; ++i) {
    Remote& peer = connected_peer();
    Work work{&peer, &local_memory(2 * length, 140 + i), &peer.memory(2 * length, 150 + i), {}, {}};
    work.out = prepare(peer, TCPX_WRITE, *work.local, *work.remote, {{0, 0, length}});
    work.in = prepare(peer, TCPX_READ, *work.local, *work.remote, {{length, length, length}});
    all.push_back(std::move(work));
  }
  for (Work& work : all) {
    ASSERT_TRUE(succeeded(work.out.post()));
    ASSERT_TRUE(succeeded(work.in.post()));
  }
  for (Work& work : all) {
    ASSERT_TRUE(succeeded(work.out.wait(kLong)));
    ASSERT_TRUE(succeeded(work.in.wait(kLong)));
    apply(TCPX_WRITE, *work.local, *work.remote, {{0, 0, length}});
    apply(TCPX_READ, *work.local, *work.remote, {{length, length, length}});
    expect_intact(*work.local);
    work.peer->expect_intact(*work.remote);
  }
}

TEST_P(Concurrency, SeveralPeersMayUseOneTargetAtOnce) {
  const size_t count = 3;
  const uint64_t length = 1 << 20;
  LocalRegion& target = local_memory(count * length, 160, kReadWrite);
  Bytes description;
  ASSERT_TRUE(succeeded(engine.export_region(target.id, &description)));
  std::vector<Remote*> peers;
  for (size_t i = 0; i < count; ++i) {
    Remote& peer = make_peer();
    peers.push_back(&peer);
    PeerRegion& own = peer.memory(length, 170 + i);
    std::string us = peer.program("connect {}", to_hex(engine.connection_info()));
    peer.program("import target {}", to_hex(description));
    peer.program("prepare t write {} {} 0 target {} {}", us, own.name, i * length, length);
    peer.program("post t -1 none");
  }
  for (size_t i = 0; i < count; ++i) {
    peers[i]->program("wait t {}", kLong.count());
    Pattern(170 + i).fill(target.expected.data() + i * length, length, 0);
  }
  expect_intact(target);
}

TEST_P(Concurrency, TransfersPostedBeforeTheConnectionExistsWaitForIt) {
  Remote& peer = make_peer();
  LocalRegion& local = local_memory(100'000, 181);  // registered before any connection, both sides
  PeerRegion& remote = peer.memory(100'000, 182);
  ASSERT_TRUE(succeeded(engine.connect(peer.program.info(), &peer.id)));
  Transfer out = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, 50'000}});
  Transfer in = prepare(peer, TCPX_READ, local, remote, {{50'000, 50'000, 50'000}});
  ASSERT_TRUE(succeeded(out.post()));
  ASSERT_TRUE(succeeded(in.post()));
  ASSERT_TRUE(succeeded(out.wait(kLong)));
  ASSERT_TRUE(succeeded(in.wait(kLong)));
  apply(TCPX_WRITE, local, remote, {{0, 0, 50'000}});
  apply(TCPX_READ, local, remote, {{50'000, 50'000, 50'000}});
  expect_intact(local);
  peer.expect_intact(remote);
}

// The target never calls accept, connect or poll: its application thread sleeps in read(2).
TEST_P(Concurrency, TargetThatNeverConnectedBackNeedsNoCallFromItsApplication) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(1 << 20, 191);
  PeerRegion& remote = peer.memory(1 << 20, 192);
  for (int i = 0; i < 20; ++i) {
    move(peer, TCPX_WRITE, local, remote, {{0, 0, 1 << 19}});
    move(peer, TCPX_READ, local, remote, {{1 << 19, 1 << 19, 1 << 19}});
  }
  expect_intact(local);
  peer.expect_intact(remote);
}

TEST_P(Concurrency, TransfersInFlightOnOnePeerDoNotDelayTheEndOfOthers) {
  Remote& busy = connected_peer();
  Remote& quick = connected_peer();
  const uint64_t large = smaller_if_sanitized<uint64_t>(32 << 20, 16 << 20);
  LocalRegion& big = local_memory(large, 201);
  PeerRegion& sink = busy.memory(large, 202);
  LocalRegion& small = local_memory(4096, 203);
  PeerRegion& place = quick.memory(4096, 204);
  Transfer bulk = prepare(busy, TCPX_WRITE, big, sink, {{0, 0, large}});
  int done = 0;
  // The bulk may be through before we look for the first time; then it is tried again.
  for (int attempt = 0; attempt < 50 && done == 0; ++attempt) {
    ASSERT_TRUE(succeeded(bulk.post()));
    while (bulk.poll().in_progress() && done < 10'000) {
      move(quick, TCPX_WRITE, small, place, {{0, 0, 4096}});
      ++done;
    }
    ASSERT_TRUE(succeeded(bulk.wait(kLong)));
  }
  EXPECT_GT(done, 0);
  quick.expect_intact(place);
}

TCPX_INSTANTIATE_CONFORMANCE(Concurrency);

TEST(LanesThatJoin, MayBeCountedWhileTheyDo) {
  Options options = loopback_options({{"lanes", "8"}, {"io_threads", "2"}});
  Engine target = make_engine(options);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) EXPECT_TRUE(counters(target).contains("peers"));
  });
  for (int round = 0; round < smaller_if_sanitized(30, 10); ++round) {
    Engine engine = make_engine(options);
    tcpx_peer peer = 0;
    tcpx_peer_info info{};
    EXPECT_TRUE(succeeded(engine.connect(target.connection_info(), &peer)));
    while (engine.peer_wait(peer, Ms{0}).in_progress()) {
      (void)engine.peer_info(peer, &info);
      (void)engine.counters_json();
    }
    EXPECT_TRUE(succeeded(engine.peer_wait(peer, kLong)));
  }
  stop = true;
  reader.join();
}

// Lanes join one after the other; traffic on the first ones and lanes that go meet those that come.
TEST(LanesThatJoin, MeetTrafficAndGoodbyesSafely) {
  const int rounds = smaller_if_sanitized(60, 15);
  Options options = loopback_options({{"lanes", "8"}, {"io_threads", "2"}});
  Engine target = make_engine(options);
  Local there = make_local(target, 1 << 20, kReadWrite, 2);
  tcpx_remote_region remote = describe(target, there.region);
  for (int round = 0; round < rounds; ++round) {
    Engine engine = make_engine(options);
    Local here = make_local(engine, 1 << 20, 0, static_cast<uint64_t>(round));
    tcpx_peer peer = 0, back = 0;
    ASSERT_TRUE(succeeded(engine.connect(target.connection_info(), &peer)));
    Transfer out;
    ASSERT_TRUE(succeeded(engine.prepare(peer, TCPX_WRITE, {{here.region, 0, 1 << 20}},
                                         {{&remote, 0, 1 << 20}}, &out)));
    ASSERT_TRUE(succeeded(out.post()));
    ASSERT_TRUE(succeeded(target.accept(&back, kLong)));
    ASSERT_TRUE(succeeded(target.notify(back, "while you join", kLong)));
    if (round % 3 != 0) {
      ASSERT_TRUE(succeeded(out.wait(kLong))) << out.error();
      EXPECT_EQ(mismatch(*there.memory, 0, 1 << 20, Pattern(static_cast<uint64_t>(round)), 0), -1);
    }
    if (round % 3 == 1) (void)engine.disconnect(peer);
    engine.destroy();
  }
  target.destroy();
}

}  // namespace
}  // namespace tcpx::test
