// What a slow transfer of GPU memory waited for, its receipt says: slots, the thread of the GPU,
// the copies themselves, or none of them, so the network or the peer. On the fake driver, which is
// slow where a plan says so.
#include "../support/fake_cuda.h"
#include "fixture.h"
#include "gpu/kernels/image.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kChunk = 64 << 10, kChunks = 16, kBytes = kChunks * kChunk;

// What moves, and which end is a GPU's; the receipt is the initiator's.
struct Way {
  tcpx_op op;
  const char *here, *there;
};
void PrintTo(const Way& way, std::ostream* out) {
  *out << op_name(way.op) << "_" << way.here << "_to_" << way.there;
}

class GpuReceipt : public ::testing::Test {
 protected:
  void SetUp() override {
    if (fake_cuda() == nullptr) GTEST_SKIP() << "needs the fake driver's plan";
    order_operations();
  }
  void TearDown() override {
    if (fake_cuda() == nullptr) return;
    fake_cuda()->clear_plan();
    fake_cuda()->release();
  }
  static void plan(const std::string& entries) { ASSERT_TRUE(fake_cuda()->plan(entries.c_str())); }

  void start(const char* here, const char* there, const Options& more = {}) {
    pair.emplace(loopback_options(merged(more, {{"lanes", "2"},
                                                {"chunk_bytes", std::to_string(kChunk)},
                                                {"io_threads", "1"},
                                                {"require_path", "tcp"}})));
    pair->memory_a = make_local(pair->a, 2 * kBytes, 0, 1, here);
    pair->memory_b = make_local(pair->b, 2 * kBytes, kReadWrite, 2, there);
    pair->remote_b = describe(pair->b, pair->memory_b.region);
    for (tcpx_op op : kBothOps) (void)moved(op);  // what is done once is done
  }
  // Of all the bytes in so many pieces, with gaps between them.
  Transfer prepare(tcpx_op op, uint64_t pieces = 1) {
    std::vector<tcpx_local_piece> local;
    std::vector<tcpx_remote_piece> remote;
    for (uint64_t i = 0; i < pieces; ++i) {
      const uint64_t length = kBytes / pieces, at = 2 * i * length;
      local.push_back({pair->memory_a.region, at, length});
      remote.push_back({&pair->remote_b, at, length});
    }
    Transfer transfer;
    EXPECT_TRUE(succeeded(pair->a.prepare(pair->b_at_a, op, local, remote, &transfer)));
    return transfer;
  }
  tcpx_receipt moved(tcpx_op op, uint64_t pieces = 1) {
    Transfer transfer = prepare(op, pieces);
    EXPECT_TRUE(succeeded(transfer.post()));
    EXPECT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    tcpx_receipt receipt = transfer.receipt();
    expect_within(receipt);
    return receipt;
  }
  static void expect_within(const tcpx_receipt& r) {
    for (double us : {r.slot_wait_us, r.submit_wait_us, r.staging_us}) {
      EXPECT_GE(us, 0);
      EXPECT_LE(us, r.total_us);
    }
  }
  static std::string waits(const tcpx_receipt& r) {
    return strf("of {} us: slots {}, submitting {}, staging {}", r.total_us, r.slot_wait_us,
                r.submit_wait_us, r.staging_us);
  }

  std::optional<Pair> pair;
};

class GpuReceiptOf : public GpuReceipt, public ::testing::WithParamInterface<Way> {
 protected:
  bool gpu_here() const { return std::string(GetParam().here) == "cuda"; }
  bool gpu_there() const { return std::string(GetParam().there) == "cuda"; }
  // Where both are slow, who has the bytes first waits, and the other one for it.
  bool slow_here() const { return gpu_here() && !(GetParam().op == TCPX_READ && gpu_there()); }
  void start_here(const Options& more = {}) { start(GetParam().here, GetParam().there, more); }
};

// ---- what was moved, and by what ----------------------------------------------------------------

TEST_P(GpuReceiptOf, TellsWhatWasMovedOnThisSide) {
  start_here();
  const tcpx_receipt r = moved(GetParam().op);
  EXPECT_STREQ(r.local_memory, GetParam().here);
  EXPECT_STREQ(r.remote_memory, GetParam().there);
  const uint64_t staged = gpu_here() ? kBytes : 0;
  EXPECT_EQ(r.staged_out, GetParam().op == TCPX_WRITE ? staged : 0);
  EXPECT_EQ(r.staged_in, GetParam().op == TCPX_READ ? staged : 0);
  EXPECT_EQ(r.staging_copies, staged);
  EXPECT_EQ(r.copies, gpu_here() ? kChunks : 0);
  EXPECT_EQ(r.kernels, 0u);
  EXPECT_EQ(r.kernels_missing, 0u);
  EXPECT_EQ(r.staging_us > 0, gpu_here());
  EXPECT_EQ(r.submit_wait_us > 0, gpu_here());
  if (!gpu_here()) {
    EXPECT_EQ(r.slot_wait_us, 0);
  }
}

TEST_P(GpuReceiptOf, CountsKernelsOfManyPieces) {
  if (tcpx::gpu::kernel_image() == nullptr) GTEST_SKIP() << "built without nvcc";
  start_here();
  const tcpx_receipt r = moved(GetParam().op, kBytes / 4096);
  if (!gpu_here()) {
    EXPECT_EQ(r.copies + r.kernels, 0u);
    return;
  }
  // A kernel that is late on a busy machine has copies in the place of the next.
  EXPECT_GE(r.kernels, 1u);
  EXPECT_EQ(r.kernels + r.kernels_missing, kChunks);
  EXPECT_EQ(r.copies, r.kernels_missing * (kChunk / 4096));
}

// A driver or a GPU that does not take them, a build without nvcc: the copy engine does it all.
TEST_P(GpuReceiptOf, SaysThatThereAreNoKernels) {
  plan("fail:cuModuleLoadData@*=218");
  start_here();
  const tcpx_receipt r = moved(GetParam().op, kBytes / 4096);
  EXPECT_EQ(r.kernels, 0u);
  EXPECT_EQ(r.kernels_missing, gpu_here() ? kChunks : 0);
  EXPECT_EQ(r.copies, gpu_here() ? kBytes / 4096 : 0);
  const auto json = nlohmann::json::parse([&] {
    Transfer transfer = prepare(GetParam().op, kBytes / 4096);
    EXPECT_TRUE(succeeded(transfer.post()));
    EXPECT_TRUE(succeeded(transfer.wait(kLong)));
    return transfer.receipt_json();
  }());
  EXPECT_EQ(json.at("kernels_missing"), r.kernels_missing);
  EXPECT_EQ(json.at("local_memory"), GetParam().here);
}

// ---- what it waited for -------------------------------------------------------------------------

TEST_P(GpuReceiptOf, NamesTheWaitForTheThreadOfTheGpu) {
  start_here();
  fake_cuda()->hold_driver_lock(200);
  const tcpx_receipt r = moved(GetParam().op);
  if (slow_here()) {
    EXPECT_GT(r.submit_wait_us, 150'000) << waits(r);
    EXPECT_LT(r.slot_wait_us + r.staging_us, 100'000) << waits(r);
  } else {
    EXPECT_LT(r.submit_wait_us + r.slot_wait_us + r.staging_us, 100'000) << waits(r);
    EXPECT_EQ(r.moving_us > 150'000, gpu_there()) << "it is the peer that waits: " << waits(r);
  }
}

TEST_P(GpuReceiptOf, NamesTheCopies) {
  start_here();
  plan("copy_us:10000");
  const tcpx_receipt r = moved(GetParam().op);
  fake_cuda()->clear_plan();
  if (!gpu_here()) {
    EXPECT_EQ(r.submit_wait_us + r.slot_wait_us + r.staging_us, 0);
    return;
  }
  EXPECT_GT(r.staging_us, 80'000) << waits(r);
  EXPECT_LT(r.submit_wait_us + r.slot_wait_us, r.staging_us / 2) << waits(r);
}

// Two slots for each way, and four chunks: half of the time the last one waits for a slot.
TEST_P(GpuReceiptOf, NamesTheWaitForSlots) {
  start_here({{"gpu_staging", "1M"}, {"chunk_bytes", "256K"}, {"lanes", "1"}});
  plan("copy_us:50000");
  const tcpx_receipt r = moved(GetParam().op);
  fake_cuda()->clear_plan();
  if (!gpu_here()) {
    EXPECT_EQ(r.submit_wait_us + r.slot_wait_us + r.staging_us, 0);
    return;
  }
  if (!slow_here()) {
    EXPECT_LT(r.slot_wait_us, 0.5 * r.total_us) << waits(r);
    return;
  }
  EXPECT_GT(r.slot_wait_us, 50'000) << waits(r);
  EXPECT_GT(r.slot_wait_us, 0.3 * r.total_us) << waits(r);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, GpuReceiptOf,
    ::testing::Values(Way{TCPX_WRITE, "host", "host"}, Way{TCPX_WRITE, "host", "cuda"},
                      Way{TCPX_WRITE, "cuda", "host"}, Way{TCPX_WRITE, "cuda", "cuda"},
                      Way{TCPX_READ, "host", "host"}, Way{TCPX_READ, "host", "cuda"},
                      Way{TCPX_READ, "cuda", "host"}, Way{TCPX_READ, "cuda", "cuda"}),
    ::testing::PrintToStringParamName());

// Lanes that have a chunk each, dealt to them, and two slots for all.
TEST_F(GpuReceipt, ChunksThatWereDealtWaitForSlotsToo) {
  start("cuda", "host", {{"gpu_staging", "1M"}, {"chunk_bytes", "256K"}, {"lanes", "4"}});
  plan("copy_us:20000");
  for (tcpx_op op : kBothOps) {
    const tcpx_receipt r = moved(op);
    EXPECT_GT(r.slot_wait_us, 0.3 * r.total_us) << op_name(op) << ": " << waits(r);
  }
}

// A peer that does not read: the slots that a lane may have, two of four, are full of what the
// network does not take.
TEST_F(GpuReceipt, AStoppedPeerIsNoWaitForSlots) {
  Options options = loopback_options({{"lanes", "1"},
                                      {"chunk_bytes", "128K"},
                                      {"io_threads", "1"},
                                      {"gpu_staging", "1M"},
                                      {"socket_buffer", "64K"},
                                      {"gpu_slot", "128K"},
                                      {"require_path", "tcp"}});
  constexpr uint64_t kLength = 4 << 20;
  Engine engine = make_engine(options);
  Remote peer(Placement::kProcess, options, "host");
  PeerRegion& remote = peer.memory(kLength, 2);
  Local local = make_local(engine, kLength, 0, 3, "cuda");
  ASSERT_TRUE(succeeded(engine.connect(peer.program.info(), &peer.id)));
  ASSERT_TRUE(succeeded(engine.peer_wait(peer.id, kLong)));
  Transfer transfer;
  ASSERT_TRUE(succeeded(engine.prepare(peer.id, TCPX_WRITE, {{local.region, 0, kLength}},
                                       {{&remote.remote, 0, kLength}}, &transfer)));
  peer.program.freeze();
  ASSERT_TRUE(succeeded(transfer.post()));
  std::this_thread::sleep_for(Ms{600});
  peer.program.thaw();
  ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
  const tcpx_receipt r = transfer.receipt();
  expect_within(r);
  EXPECT_GT(r.moving_us, 550'000);
  EXPECT_LT(r.slot_wait_us + r.submit_wait_us + r.staging_us, r.total_us / 2) << waits(r);
}

// Also of one that has not ended, and of one that failed while it waited.
TEST_F(GpuReceipt, AWaitThatGoesOnIsTold) {
  start("cuda", "host",
        {{"gpu_staging", "1M"}, {"chunk_bytes", "256K"}});  // two slots, four chunks
  for (tcpx_op op : kBothOps) {
    SCOPED_TRACE(op_name(op));
    plan("hang:1");
    Transfer transfer = prepare(op);
    ASSERT_TRUE(succeeded(transfer.post()));
    std::this_thread::sleep_for(Ms{150});
    ASSERT_TRUE(transfer.poll().in_progress());
    EXPECT_GT(transfer.receipt().slot_wait_us, 50'000);
    std::thread releases([] {
      std::this_thread::sleep_for(Ms{100});
      fake_cuda()->release();
    });
    EXPECT_TRUE(succeeded(transfer.cancel(kLong)));
    releases.join();
    const tcpx_receipt r = transfer.receipt();
    expect_within(r);
    EXPECT_GT(r.slot_wait_us, 50'000) << waits(r);
    fake_cuda()->clear_plan();
    expect_within(moved(op));
    EXPECT_EQ(moved(op).result, TCPX_OK);
  }
}

// ---- kinds
// ----------------------------------------------------------------------------------------

TEST_F(GpuReceipt, NamesBothKindsOfOneTransfer) {
  start("cuda", "host");
  Local more = make_local(pair->a, kChunk, 0, 5, "host");
  for (tcpx_op op : kBothOps) {
    Transfer transfer;
    ASSERT_TRUE(succeeded(pair->a.prepare(
        pair->b_at_a, op, {{pair->memory_a.region, 0, kChunk}, {more.region, 0, kChunk}},
        {{&pair->remote_b, 0, kChunk}, {&pair->remote_b, kChunk, kChunk}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong)));
    const tcpx_receipt r = transfer.receipt();
    EXPECT_STREQ(r.local_memory, "host+cuda");
    EXPECT_STREQ(r.remote_memory, "host");
    EXPECT_EQ(r.staged_out + r.staged_in, kChunk) << "of the GPU's alone";
    EXPECT_EQ(r.bytes, 2 * kChunk);
  }
}

}  // namespace
}  // namespace tcpx::test
