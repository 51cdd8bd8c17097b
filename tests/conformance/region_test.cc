// No address is ever taken from the wire: the owner resolves region, generation, access and range.
// Every refusal is told to the sender, and the connection survives it.
#include "fixture.h"

namespace tcpx::test {
namespace {

class Regions : public Conformance {
 protected:
  // Runs a transfer of one piece and returns how it ended, at prepare, post or wait.
  Result attempt(Remote& peer, tcpx_op op, tcpx_local_piece mine, tcpx_remote_piece theirs) {
    Transfer transfer;
    Result result = engine.prepare(peer.id, op, {mine}, {theirs}, &transfer);
    if (!result) return result;
    result = transfer.post();
    if (!result) return result;
    result = transfer.wait(kLong);
    EXPECT_EQ(result.ok(), transfer.error().empty()) << "the sender is told why";
    return result;
  }
  // As attempt, but only through the socket: prepare and post have to accept it.
  tcpx_code refused_by_owner(Remote& peer, tcpx_op op, tcpx_local_piece mine,
                             tcpx_remote_piece theirs) {
    Transfer transfer;
    EXPECT_TRUE(succeeded(engine.prepare(peer.id, op, {mine}, {theirs}, &transfer)));
    if (!transfer) return TCPX_INTERNAL;
    EXPECT_TRUE(succeeded(transfer.post()));
    tcpx_code code = transfer.wait(kLong).code();
    EXPECT_EQ(transfer.poll().code(), code) << "poll is idempotent";
    EXPECT_EQ(transfer.receipt().result, code);
    return code;
  }
  void expect_still_works(Remote& peer, LocalRegion& local, PeerRegion& remote) {
    tcpx_receipt receipt = move(peer, TCPX_WRITE, local, remote, {{0, 0, 1000}});
    EXPECT_EQ(receipt.lanes_lost, 0u);
    move(peer, TCPX_READ, local, remote, {{1000, 1000, 1000}});
    tcpx_peer_info info{};
    ASSERT_TRUE(succeeded(engine.peer_info(peer.id, &info)));
    EXPECT_EQ(info.state, TCPX_OK);
    EXPECT_EQ(info.lanes, row().lanes) << "a refusal costs no lane";
    expect_intact(local);
    peer.expect_intact(remote);
  }
  uint64_t peer_counter(Remote& peer, const std::string& name) {
    return nlohmann::json::parse(peer.program("counters")).at("engine").at(name).get<uint64_t>();
  }
};

TEST_P(Regions, OutOfRangeIsCaughtBeforeAnythingIsSent) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 1);
  PeerRegion& remote = peer.memory(4096, 2);
  const uint64_t huge = UINT64_MAX;
  struct Bad {
    uint64_t local, remote, length;
  };
  for (Bad bad : {Bad{0, 0, 4097},
                  {0, 4096, 1},
                  {0, 1, 4096},
                  {8192, 0, 1},
                  {4097, 0, 4096},
                  {0, huge, 1},
                  {0, huge - 10, 100},
                  {huge, 0, 1},
                  {huge - 10, 0, 100},
                  {0, 0, huge},
                  {1, 1, huge}})
    for (tcpx_op op : kBothOps) {
      SCOPED_TRACE(strf("{} +{} +{} {}", op_name(op), bad.local, bad.remote, bad.length));
      Transfer transfer;
      Result result = engine.prepare(peer.id, op, {{local.id, bad.local, bad.length}},
                                     {{&remote.remote, bad.remote, bad.length}}, &transfer);
      EXPECT_EQ(result.code(), TCPX_OUT_OF_RANGE);
      EXPECT_FALSE(transfer);
      EXPECT_NE(result.text(), "");
    }
  expect_still_works(peer, local, remote);
}

TEST_P(Regions, OutOfRangeIsRefusedByTheOwnerEvenIfTheSenderLies) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(2 * row().chunk, 3);
  PeerRegion& remote = peer.memory(4096, 4);
  tcpx_remote_region forged = remote.remote;
  forged.length = UINT64_MAX;
  uint64_t before = peer_counter(peer, "rejected_ranges");
  struct Bad {
    uint64_t offset, length;
  };
  uint64_t asked = 0;
  for (Bad bad : {Bad{0, 4097},
                  {4095, 2},
                  {4096, 1},
                  {5000, 100},
                  {0, 2 * row().chunk},
                  {UINT64_MAX - 100, 64},
                  {UINT64_MAX - 4096, 4096},
                  {uint64_t{1} << 32, 100}})
    for (tcpx_op op : kBothOps) {
      SCOPED_TRACE(strf("{} +{} {}", op_name(op), bad.offset, bad.length));
      EXPECT_EQ(
          refused_by_owner(peer, op, {local.id, 0, bad.length}, {&forged, bad.offset, bad.length}),
          TCPX_OUT_OF_RANGE);
      ++asked;
    }
  EXPECT_GE(peer_counter(peer, "rejected_ranges"), before + asked) << "refusals are counted";
  expect_still_works(peer, local, remote);
}

TEST_P(Regions, OneBadPieceInABatchFailsTheTransferAndTouchesNothingOutside) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(1 << 20, 5);
  PeerRegion& remote = peer.memory(4096, 6);
  PeerRegion& neighbour = peer.memory(4096, 7);
  tcpx_remote_region forged = remote.remote;
  forged.length = 1 << 20;
  std::vector<tcpx_local_piece> mine;
  std::vector<tcpx_remote_piece> theirs;
  for (uint64_t i = 0; i < 1500; ++i) {
    mine.push_back({local.id, i * 20, 8});
    theirs.push_back({&forged, i == 1200 ? 4092 : (i % 400) * 10, 8});
  }
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer.id, TCPX_WRITE, mine, theirs, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post()));
  EXPECT_EQ(transfer.wait(kLong).code(), TCPX_OUT_OF_RANGE);
  EXPECT_EQ(peer.program("damage {}", remote.name), "") << "nothing landed outside the region";
  expect_still_works(peer, local, neighbour);
}

TEST_P(Regions, AccessBitsAreHeldByTheOwner) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 11);
  PeerRegion& read_only = peer.memory(8192, 12, TCPX_REMOTE_READ);
  PeerRegion& write_only = peer.memory(8192, 13, TCPX_REMOTE_WRITE);
  PeerRegion& closed = peer.memory(8192, 14, 0);
  PeerRegion& open = peer.memory(8192, 15);
  uint64_t before = peer_counter(peer, "rejected_access");
  struct Bad {
    PeerRegion* region;
    tcpx_op op;
  };
  for (Bad bad : {Bad{&read_only, TCPX_WRITE},
                  {&write_only, TCPX_READ},
                  {&closed, TCPX_WRITE},
                  {&closed, TCPX_READ}}) {
    SCOPED_TRACE(strf("{} {}", bad.region->name, op_name(bad.op)));
    Transfer transfer;
    Result honest = engine.prepare(peer.id, bad.op, {{local.id, 0, 100}},
                                   {{&bad.region->remote, 0, 100}}, &transfer);
    EXPECT_EQ(honest.code(), TCPX_ACCESS_DENIED) << "the description already says so";
    tcpx_remote_region forged = bad.region->remote;
    forged.access = kReadWrite;
    EXPECT_EQ(refused_by_owner(peer, bad.op, {local.id, 0, 100}, {&forged, 0, 100}),
              TCPX_ACCESS_DENIED);
    peer.expect_intact(*bad.region);
  }
  EXPECT_GE(peer_counter(peer, "rejected_access"), before + 4);
  move(peer, TCPX_READ, local, read_only, {{0, 0, 100}});
  move(peer, TCPX_WRITE, local, write_only, {{0, 0, 100}});
  expect_still_works(peer, local, open);
}

TEST_P(Regions, AStaleRegionIsRefusedAlsoWhenItsMemoryIsRegisteredAgain) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 21);
  PeerRegion& gone = peer.memory(8192, 22);
  PeerRegion& open = peer.memory(8192, 23);
  move(peer, TCPX_WRITE, local, gone, {{0, 0, 8192}});
  Transfer prepared = prepare(peer, TCPX_WRITE, local, gone, {{0, 0, 8192}});
  peer.program("deregister {}", gone.name);
  for (int round = 0; round < 3; ++round) {
    for (tcpx_op op : kBothOps)
      EXPECT_EQ(refused_by_owner(peer, op, {local.id, 0, 100}, {&gone.remote, 0, 100}),
                TCPX_STALE_REGION);
    PeerRegion& next = peer.memory(8192, 24 + round);  // may take the place of the one that is gone
    EXPECT_NE(next.remote.id, gone.remote.id) << "an id is never used again";
    peer.expect_intact(next);
  }
  ASSERT_TRUE(succeeded(prepared.post()));  // a transfer prepared before is refused as well
  EXPECT_EQ(prepared.wait(kLong).code(), TCPX_STALE_REGION);
  peer.expect_intact(gone);
  expect_still_works(peer, local, open);
}

TEST_P(Regions, ASuspendedRegionIsRefusedAndResumedItIsTheSameAgain) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 41);
  PeerRegion& region = peer.memory(8192, 42);
  PeerRegion& open = peer.memory(8192, 43);
  Transfer prepared = prepare(peer, TCPX_READ, local, region, {{0, 0, 8192}});
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE(round);
    peer.program("suspend {}", region.name);
    EXPECT_EQ(peer.program.call("suspend {}", region.name).code, TCPX_NOT_FOUND) << "it is";
    PeerRegion& other = peer.memory(8192, 44 + round);
    EXPECT_NE(other.remote.id, region.remote.id) << "its id is kept for it";
    peer.program("resume {}", region.name);
    EXPECT_EQ(peer.program.call("resume {}", region.name).code, TCPX_NOT_FOUND) << "it runs";
    // By the description from before, and by transfers prepared before.
    move(peer, TCPX_WRITE, local, region, {{0, 0, 8192}});
    ASSERT_TRUE(succeeded(prepared.post()));
    ASSERT_TRUE(succeeded(prepared.wait(kLong)));
  }
  peer.program("suspend {}", region.name);
  peer.program("deregister {}", region.name);
  EXPECT_EQ(peer.program.call("resume {}", region.name).code, TCPX_NOT_FOUND) << "gone for good";
  EXPECT_EQ(peer.program.call("deregister {}", region.name).code, TCPX_NOT_FOUND);
  EXPECT_EQ(refused_by_owner(peer, TCPX_WRITE, {local.id, 0, 100}, {&region.remote, 0, 100}),
            TCPX_STALE_REGION);
  peer.expect_intact(region);
  expect_still_works(peer, local, open);
}

// Who uses it meanwhile may have more on its way: the resume waits for that, and works.
TEST_P(Regions, ASuspendedRegionThatWasUsedComesBackAll) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 61);
  PeerRegion& region = peer.memory(8192, 62);
  PeerRegion& open = peer.memory(8192, 63);
  peer.program("suspend {}", region.name);
  for (tcpx_op op : kBothOps)
    EXPECT_EQ(refused_by_owner(peer, op, {local.id, 0, 100}, {&region.remote, 0, 100}),
              TCPX_STALE_REGION);
  peer.program("resume {}", region.name);
  move(peer, TCPX_WRITE, local, region, {{0, 0, 8192}});
  peer.expect_intact(region);
  expect_still_works(peer, local, open);
}

// Ours: what is in progress ends, and its memory is free.
TEST_P(Regions, SuspendingALocalRegionEndsItsTransfersAndResumedItServesAgain) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 51);
  PeerRegion& remote = peer.memory(8192, 52);
  Transfer transfer = prepare(peer, TCPX_WRITE, local, remote, {{0, 0, 8192}});
  ASSERT_TRUE(succeeded(engine.suspend(local.id)));
  EXPECT_EQ(transfer.post().code(), TCPX_REGION_REVOKED);
  ASSERT_TRUE(succeeded(engine.resume(local.id)));
  move(peer, TCPX_WRITE, local, remote, {{0, 0, 8192}});
  expect_still_works(peer, local, remote);
}

TEST_P(Regions, UnknownIdsAreRefused) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 31);
  PeerRegion& open = peer.memory(8192, 32);
  for (uint64_t change : {uint64_t{1}, uint64_t{0xffff}, uint64_t{1} << 32, ~uint64_t{0}}) {
    tcpx_remote_region forged = open.remote;
    forged.id ^= change;
    Result result = attempt(peer, TCPX_WRITE, {local.id, 0, 64}, {&forged, 0, 64});
    EXPECT_TRUE(result.code() == TCPX_NOT_FOUND || result.code() == TCPX_STALE_REGION)
        << result.name();
  }
  expect_still_works(peer, local, open);
}

TEST_P(Regions, ARegionOfAnotherEngineIsRefused) {
  Remote& peer = connected_peer();
  Remote& other = connected_peer();
  LocalRegion& local = local_memory(8192, 41);
  PeerRegion& here = peer.memory(8192, 42);
  PeerRegion& there = other.memory(8192, 43);
  Result result = attempt(peer, TCPX_WRITE, {local.id, 0, 64}, {&there.remote, 0, 64});
  EXPECT_TRUE(result.code() == TCPX_INVALID_ARGUMENT || result.code() == TCPX_NOT_FOUND)
      << result.name();
  peer.expect_intact(here);
  other.expect_intact(there);
  expect_still_works(peer, local, here);
}

TEST_P(Regions, TenThousandRegionsAreEachFound) {
  Remote& peer = connected_peer();
  // Each of them is deregistered behind a fence of its own, which on net asks a thread per lane.
  const size_t count = smaller_if_sanitized<size_t>(row().path == "net" ? 4'000 : 10'000, 2'000);
  const uint64_t size = 256;
  auto memory = allocate(row().memory, count * size);
  std::vector<tcpx_region> regions(count);
  for (size_t i = 0; i < count; ++i)
    ASSERT_TRUE(succeeded(engine.register_memory(
        static_cast<uint8_t*>(memory->address()) + i * size, size, kReadWrite, &regions[i])));
  PeerRegion& remote = peer.memory(count * size, 51);
  std::vector<tcpx_local_piece> mine;
  std::vector<tcpx_remote_piece> theirs;
  for (size_t i = 0; i < count; ++i) {
    size_t pick = (i * 7919) % count;
    mine.push_back({regions[pick], 0, size});
    theirs.push_back({&remote.remote, pick * size, size});
  }
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer.id, TCPX_READ, mine, theirs, &transfer)));
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  EXPECT_EQ(mismatch(*memory, 0, count * size, Pattern(51), 0), -1);
  for (size_t i = 0; i < count; i += 997) {  // and as the peer names them
    tcpx_remote_region described = describe(engine, regions[i]);
    EXPECT_EQ(described.length, size);
    EXPECT_EQ(described.access, kReadWrite);
  }
  transfer.release();
  for (tcpx_region region : regions) ASSERT_TRUE(succeeded(engine.deregister(region)));
  EXPECT_EQ(engine.deregister(regions[0]).code(), TCPX_NOT_FOUND) << "twice";
}

TEST_P(Regions, OverlappingAndRepeatedRegistrationsAreIndependent) {
  Remote& peer = connected_peer();
  LocalRegion& local = local_memory(8192, 61);
  PeerRegion& remote = peer.memory(8192, 62);
  tcpx_region inner = 0, again = 0;
  auto* base = static_cast<uint8_t*>(local.memory->address());
  ASSERT_TRUE(succeeded(engine.register_memory(base + 1000, 500, 0, &inner)));
  ASSERT_TRUE(succeeded(engine.register_memory(base, 8192, 0, &again)));
  ASSERT_TRUE(succeeded(engine.deregister(again)));
  for (auto [region, shift] : {std::pair{local.id, uint64_t{0}}, {inner, uint64_t{1000}}}) {
    ASSERT_TRUE(
        succeeded(attempt(peer, TCPX_WRITE, {region, 0, 500}, {&remote.remote, shift, 500})));
    std::memcpy(remote.expected.data() + shift, local.expected.data() + shift, 500);
  }
  peer.expect_intact(remote);
  ASSERT_TRUE(succeeded(engine.deregister(inner)));
}

TCPX_INSTANTIATE_CONFORMANCE(Regions);

// ---- descriptions as bytes: no socket needed, but the public API ------------------------------
class Descriptions : public ::testing::Test {
 protected:
  Engine engine = make_engine(loopback_options());
  HostMemory memory{4096};
};

TEST_F(Descriptions, ExportAndImportRoundTrip) {
  tcpx_region region = 0;
  ASSERT_TRUE(succeeded(engine.register_memory(memory.address(), 4096, TCPX_REMOTE_READ, &region)));
  Bytes bytes;
  ASSERT_TRUE(succeeded(engine.export_region(region, &bytes)));
  tcpx_remote_region remote{};
  ASSERT_TRUE(succeeded(Engine::import_region(bytes, &remote)));
  EXPECT_EQ(remote.length, 4096u);
  EXPECT_EQ(remote.access, TCPX_REMOTE_READ);
  EXPECT_NE(remote.id, 0u);
  auto address = reinterpret_cast<uintptr_t>(memory.address());
  for (size_t i = 0; i + sizeof address <= bytes.size(); ++i)
    EXPECT_NE(std::memcmp(bytes.data() + i, &address, sizeof address), 0) << "no address in it";
}

TEST_F(Descriptions, EveryChangedBitAndEveryWrongLengthIsRejected) {
  tcpx_region region = 0;
  ASSERT_TRUE(succeeded(engine.register_memory(memory.address(), 4096, kReadWrite, &region)));
  Bytes bytes;
  ASSERT_TRUE(succeeded(engine.export_region(region, &bytes)));
  tcpx_remote_region untouched{};
  untouched.id = 77;
  tcpx_remote_region out = untouched;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes changed = bytes;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    Result result = Engine::import_region(changed, &out);
    EXPECT_TRUE(result.code() == TCPX_TAMPERED || result.code() == TCPX_VERSION_MISMATCH ||
                result.code() == TCPX_INVALID_ARGUMENT)
        << "bit " << bit << ": " << result.name();
  }
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(Engine::import_region(Bytes(bytes.begin(), bytes.begin() + length), &out).ok());
  Bytes longer = bytes;
  longer.push_back(0);
  EXPECT_FALSE(Engine::import_region(longer, &out).ok());
  EXPECT_EQ(out.id, untouched.id) << "outputs are written only on success";
}

TEST_F(Descriptions, BadRegistrationsAreRefused) {
  tcpx_region region = 99;
  EXPECT_EQ(engine.register_memory(nullptr, 10, 0, &region).code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(engine.register_memory(memory.address(), UINT64_MAX, 0, &region).code(),
            TCPX_INVALID_ARGUMENT)
      << "wraps around the address space";
  EXPECT_EQ(engine.register_memory(memory.address(), 10, 0xf0, &region).code(),
            TCPX_INVALID_ARGUMENT)
      << "unknown access bits";
  EXPECT_EQ(tcpx_register(engine.raw(), memory.address(), 10, 0, nullptr), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(region, 99u);
  EXPECT_EQ(engine.deregister(0).code(), TCPX_NOT_FOUND);
  EXPECT_EQ(engine.deregister(123456).code(), TCPX_NOT_FOUND);
  Bytes bytes;
  EXPECT_EQ(engine.export_region(123456, &bytes).code(), TCPX_NOT_FOUND);
}

}  // namespace
}  // namespace tcpx::test
