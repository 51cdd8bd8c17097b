// Completion tells the truth: content of one transfer at a time, by size, alignment and batch.
#include <fstream>

#include "fixture.h"

namespace tcpx::test {
namespace {

class Content : public Conformance {
 protected:
  std::vector<uint64_t> sizes() const {
    uint64_t chunk = row().chunk;
    return {0,         1,     2,         4095,          4096,          4097,
            chunk - 1, chunk, chunk + 1, 2 * chunk + 7, 5 * chunk / 2, (3u << 20) + 5};
  }
  void moves_every_size(tcpx_op op) {
    Remote& peer = connected_peer();
    const uint64_t room = 4 << 20;
    LocalRegion& local = local_memory(room, 11);
    PeerRegion& remote = peer.memory(room, 12);
    for (uint64_t size : sizes()) {
      SCOPED_TRACE(size);
      tcpx_receipt receipt = move(peer, op, local, remote, {{100, 300, size}});
      EXPECT_EQ(receipt.bytes, size);
      expect_intact(local);
      peer.expect_intact(remote);
    }
  }
};

TEST_P(Content, WriteDoneMeansTheBytesAreInTheDestination) {
  moves_every_size(TCPX_WRITE);
}
TEST_P(Content, ReadDoneMeansTheBytesAreInTheDestination) {
  moves_every_size(TCPX_READ);
}

TEST_P(Content, OddAlignmentOnEitherSideMovesExactlyTheAskedBytes) {
  Remote& peer = connected_peer();
  const uint64_t room = 2 * row().chunk + 8192;
  LocalRegion& local = local_memory(room, 21, 0, 3);
  PeerRegion& remote = peer.memory(room, 22, kReadWrite, 13);
  struct Offsets {
    uint64_t local, remote;
  };
  for (Offsets offset : {Offsets{0, 1}, {1, 0}, {3, 5}, {7, 4095}, {63, 64}, {4097, 2}})
    for (uint64_t size : {uint64_t{1}, uint64_t{13}, uint64_t{4097}, row().chunk + 1})
      for (tcpx_op op : kBothOps) {
        SCOPED_TRACE(
            strf("{} local+{} remote+{} {} bytes", op_name(op), offset.local, offset.remote, size));
        move(peer, op, local, remote, {{offset.local, offset.remote, size}});
        if (HasFailure()) return;
      }
  expect_intact(local);
  peer.expect_intact(remote);
}

// Pieces in different random order on both sides with gaps: nothing can be joined.
std::vector<Span> scattered(size_t count, uint64_t length, uint64_t seed) {
  std::vector<uint64_t> mine(count), theirs(count);
  for (size_t i = 0; i < count; ++i) mine[i] = theirs[i] = i * (length + 3);
  Rng rng(seed);
  rng.shuffle(mine);
  rng.shuffle(theirs);
  std::vector<Span> spans;
  for (size_t i = 0; i < count; ++i) spans.push_back({mine[i] + 1, theirs[i] + 2, length});
  return spans;
}

TEST_P(Content, ScatteredBatchesMoveEveryPieceToItsPlace) {
  Remote& peer = connected_peer();
  const uint64_t length = 101;
  const uint64_t room = 5000 * (length + 3) + 16;
  LocalRegion& local = local_memory(room, 31);
  PeerRegion& remote = peer.memory(room, 32);
  for (size_t count : {size_t{1}, size_t{2}, size_t{999}, size_t{1000}, size_t{1001}, size_t{5000}})
    for (tcpx_op op : kBothOps) {
      SCOPED_TRACE(strf("{} {} pieces", op_name(op), count));
      tcpx_receipt receipt = move(peer, op, local, remote, scattered(count, length, count));
      EXPECT_EQ(receipt.pieces, count);
      EXPECT_EQ(receipt.bytes, count * length);
      expect_intact(local);
      peer.expect_intact(remote);
      if (HasFailure()) return;
    }
}

TEST_P(Content, NeighbouringPiecesAreJoinedAndStillRight) {
  Remote& peer = connected_peer();
  const uint64_t length = 1000, count = 2000;
  LocalRegion& local = local_memory(count * length + 64, 41);
  PeerRegion& remote = peer.memory(count * length + 64, 42);
  std::vector<Span> spans;
  for (uint64_t i = 0; i < count; ++i) spans.push_back({7 + i * length, 9 + i * length, length});
  for (tcpx_op op : kBothOps) {
    SCOPED_TRACE(op_name(op));
    tcpx_receipt receipt = move(peer, op, local, remote, spans);
    EXPECT_EQ(receipt.pieces, count);
    EXPECT_EQ(receipt.runs, 1u) << "pieces that touch on both sides are one run";
    expect_intact(local);
    peer.expect_intact(remote);
  }
}

TEST_P(Content, PiecesThatTouchOnOneSideOnlyAreNotJoined) {
  Remote& peer = connected_peer();
  const uint64_t length = 512, count = 300;
  LocalRegion& local = local_memory(2 * count * length, 43);
  PeerRegion& remote = peer.memory(2 * count * length, 44);
  std::vector<Span> spans;
  for (uint64_t i = 0; i < count; ++i) spans.push_back({i * length, i * length * 2, length});
  for (tcpx_op op : kBothOps) {
    EXPECT_EQ(move(peer, op, local, remote, spans).runs, count);
    for (Span& span : spans) std::swap(span.local, span.remote);
    EXPECT_EQ(move(peer, op, local, remote, spans).runs, count);
    expect_intact(local);
    peer.expect_intact(remote);
  }
}

TEST_P(Content, SourceBytesMayBeNamedByManyPieces) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(1 << 20, 45);
  PeerRegion& remote = peer.memory(1 << 20, 46);
  std::vector<Span> spans;  // overlapping ranges at the source, separate ones at the destination
  for (uint64_t i = 0; i < 500; ++i) spans.push_back({i * 10, i * 1100, 1000});
  move(peer, TCPX_WRITE, local, remote, spans);
  for (Span& span : spans) std::swap(span.local, span.remote);
  move(peer, TCPX_READ, local, remote, spans);
  expect_intact(local);
  peer.expect_intact(remote);
}

TEST_P(Content, ZeroLengthPiecesAreFineAnywhereInTheList) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(1 << 20, 51);
  PeerRegion& remote = peer.memory(1 << 20, 52);
  std::vector<Span> spans;
  for (const Span& span : scattered(700, 64, 5)) {
    if (spans.size() % 3 == 0) spans.push_back({span.local, span.remote, 0});
    spans.push_back(span);
  }
  spans.insert(spans.begin(), {0, 0, 0});
  spans.push_back({1 << 20, 1 << 20, 0});  // at the very end: inside, because it is empty
  for (tcpx_op op : kBothOps) {
    tcpx_receipt receipt = move(peer, op, local, remote, spans);
    EXPECT_EQ(receipt.bytes, 700u * 64);
    EXPECT_EQ(receipt.pieces, spans.size());
    move(peer, op, local, remote, {{5, 5, 0}, {9, 1, 0}});  // nothing but empty ones: also done
  }
  expect_intact(local);
  peer.expect_intact(remote);
}

TEST_P(Content, OneTransferMayUseManyRegionsOnBothSides) {
  Remote& peer = connected_peer();
  std::vector<LocalRegion*> locals;
  std::vector<PeerRegion*> remotes;
  std::vector<tcpx_local_piece> mine;
  std::vector<tcpx_remote_piece> theirs;
  const uint64_t length = 5000;
  for (uint64_t i = 0; i < 20; ++i) {
    locals.push_back(&local_memory(length + i, 60 + i, 0, i));
    remotes.push_back(&peer.memory(length + i, 90 + i));
  }
  for (uint64_t i = 0; i < 20; ++i) {
    mine.push_back({locals[i]->id, i, length});
    theirs.push_back({&remotes[19 - i]->remote, 19 - i, length});
    apply(TCPX_WRITE, *locals[i], *remotes[19 - i], {{i, 19 - i, length}});
  }
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer.id, TCPX_WRITE, mine, theirs, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  for (LocalRegion* local : locals) expect_intact(*local);
  for (PeerRegion* remote : remotes) peer.expect_intact(*remote);
}

TEST_P(Content, TwoHundredThousandPiecesOf64Bytes) {
  Remote& peer = connected_peer();
  const size_t count = smaller_if_sanitized<size_t>(200'000, 20'000);
  const uint64_t room = count * 67 + 16;
  LocalRegion& local = local_memory(room, 71);
  PeerRegion& remote = peer.memory(room, 72);
  std::vector<Span> spans = scattered(count, 64, 7);
  for (tcpx_op op : kBothOps) {
    SCOPED_TRACE(op_name(op));
    EXPECT_EQ(move(peer, op, local, remote, spans).pieces, count);
    expect_intact(local);
    peer.expect_intact(remote);
  }
}

TEST_P(Content, OffsetsBeyond4GiBNameTheRightBytes) {
  Remote& peer = connected_peer();
  const uint64_t far = (uint64_t{5} << 30) + 12345;
  const uint64_t length = 1 << 20, size = far + length;
  Local local = make_local(engine, size, 0, 0, "sparse");
  tcpx_remote_region remote = peer.program.memory("far", size, kReadWrite, 0, "sparse");
  peer.program("fill far {} {} 82 0 0", far, length);
  for (tcpx_op op : kBothOps) {
    SCOPED_TRACE(op_name(op));
    if (op == TCPX_WRITE) fill(*local.memory, far - 77, length, Pattern(81), 0);
    Transfer transfer;
    ASSERT_TRUE(succeeded(engine.prepare(peer.id, op, {{local.region, far - 77, length}},
                                         {{&remote, far, length}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    if (op == TCPX_WRITE) {
      EXPECT_EQ(peer.program.check("far", far, length, 81, 0, 0), "");
      peer.program("fill far {} {} 83 0 0", far, length);
    } else {
      EXPECT_EQ(mismatch(*local.memory, far - 77, length, Pattern(83), 0), -1);
    }
    // What a 32-bit offset would have hit is still zero.
    EXPECT_EQ(local.data()[(far - 77) & 0xffffffff], 0);
    EXPECT_EQ(peer.program("bytes far {} 4", far & 0xffffffff), "00000000");
  }
  EXPECT_TRUE(succeeded(engine.deregister(local.region)));
}

// The longest chunk a frame can carry is the longest one that may be asked for; a lane's memory for
// staging is sized by it.
TEST(ChunkLimit, IsRefusedAtTheStartAndNamed) {
  constexpr uint64_t kMost = 16 << 20;
  Engine engine;
  Result result =
      Engine::create(loopback_options({{"chunk_bytes", std::to_string(kMost + 1)}}), &engine);
  EXPECT_EQ(result.code(), TCPX_BAD_CONFIG);
  for (const char* part : {"chunk_bytes", "16777217", "4K..16M"})
    EXPECT_NE(result.text().find(part), std::string::npos) << part << " in: " << result.text();
  EXPECT_FALSE(engine);

  Pair pair(loopback_options({{"chunk_bytes", std::to_string(kMost)}, {"lanes", "1"}}));
  pair.allocate(2 * kMost + 1);
  Transfer transfer = pair.prepare(TCPX_WRITE, 2 * kMost + 1);
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  EXPECT_EQ(transfer.receipt().chunks, 3u);
  EXPECT_EQ(mismatch(*pair.memory_b.memory, 0, 2 * kMost + 1, Pattern(1), 0), -1);
}

class LongContent : public Conformance {
 protected:
  static uint64_t available_memory() {
    std::ifstream file("/proc/meminfo");
    uint64_t kib = 0;
    for (std::string word; file >> word;)
      if (word == "MemAvailable:") file >> kib;
    return kib << 10;
  }
};

// Every byte is looked at. One side is 64 MiB mapped again and again, so that 9 GiB are enough.
TEST_P(LongContent, TransfersOf8GiB) {
  const uint64_t length = uint64_t{8} << 30, needed = uint64_t{9} << 30;
  const uint64_t free = available_memory();
  if (!long_tests()) GTEST_SKIP() << "moves 16 GiB in all; set TCPX_TEST_LONG=1";
  if (free < needed)
    GTEST_SKIP() << "needs 9 GiB of free memory, here are " << (free >> 20) << " MiB";
  Remote& peer = connected_peer();
  for (tcpx_op op : kBothOps) {
    const bool write = op == TCPX_WRITE;
    SCOPED_TRACE(write ? "WRITE" : "READ");
    const char *source = "repeated", *sink = "host";
    Local local = make_local(engine, length, 0, 91, write ? source : sink);
    tcpx_remote_region remote =
        peer.program.memory("big", length, kReadWrite, 92, write ? sink : source);
    {
      Transfer transfer;
      ASSERT_TRUE(succeeded(engine.prepare(peer.id, op, {{local.region, 0, length}},
                                           {{&remote, 0, length}}, &transfer)));
      ASSERT_TRUE(succeeded(transfer.post(patience_for(length))));
      ASSERT_TRUE(succeeded(transfer.wait(patience_for(length))));
      EXPECT_EQ(transfer.receipt().bytes, length);
    }
    for (uint64_t at = 0; at < length; at += RepeatedMemory::kPeriod) {
      const uint64_t n = std::min(RepeatedMemory::kPeriod, length - at);
      if (write)
        ASSERT_EQ(peer.program.check("big", at, n, 91, 0, 0), "") << at;
      else
        ASSERT_EQ(mismatch(*local.memory, at, n, Pattern(92), 0), -1) << at;
    }
    EXPECT_TRUE(succeeded(engine.deregister(local.region)));
    peer.program("deregister big");
    peer.program.memory("big", 1, 0);  // in its place: the memory is given back
  }
}

TCPX_INSTANTIATE_CONFORMANCE(Content);
TCPX_INSTANTIATE_CONFORMANCE_ROW(LongContent, "tcp_host_4lanes");

}  // namespace
}  // namespace tcpx::test
