// A peer that keeps to the protocol and takes its time: what it has announced to a GPU and sends
// byte by byte, or has asked of a GPU and does not read. Others move that GPU's memory meanwhile,
// and its owner gets its own back.
#include "../support/fake_cuda.h"
#include "raw_lanes.h"

namespace tcpx::test {
namespace {

class GpuGreedy : public RawLanes {
 protected:
  static constexpr uint64_t kChunk = 64 << 10, kBytes = 1 << 20;
  static constexpr uint32_t kLanes = 24;

  // Room for eight chunks each way for all lanes.
  void SetUp() override { start_with_slots("0"); }
  void start_with_slots(const char* slot) {
    if (cuda().devices < 1) GTEST_SKIP() << "there is no GPU";
    order_operations();
    start({{"io_threads", "1"},
           {"gpu_staging", "1M"},
           {"gpu_slot", slot},
           {"chunk_bytes", "64K"},
           {"socket_buffer", "32K"},
           {"lanes", std::to_string(kLanes)},
           {"deadline", time_option(3'000)},
           {"peer_timeout", time_option(20'000)},
           {"lane_timeout", time_option(10'000)}});
    theirs_ = make_local(engine, kLanes * kChunk, kReadWrite, 1, "cuda");
    ours_ = make_local(engine, kBytes, kReadWrite, 2, "cuda");
    first->hello.lanes = kLanes;
    ASSERT_TRUE(first->handshake());
    for (uint32_t i = 1; i < kLanes; ++i) lanes_.push_back(join_lane(i));
    honest_ = make_engine(fault_options({{"chunk_bytes", "64K"}}));
    mine_ = make_local(honest_, kBytes, 0, 3, "host");
    ASSERT_TRUE(succeeded(honest_.connect(engine.connection_info(), &owner_)));
    ASSERT_TRUE(succeeded(honest_.peer_wait(owner_, kLong)));
  }
  template <class F>
  void each_lane(F&& f) {
    f(*first, 0);
    for (uint32_t i = 1; i < kLanes; ++i) f(*lanes_[i - 1], i);
    std::this_thread::sleep_for(Ms{50});  // until every lane has what it gets
  }
  wire::Header header(wire::FrameType type, uint64_t transfer) {
    wire::Header out = frame_of(type, transfer, first->epoch);
    out.payload_bytes = kChunk;
    return out;
  }
  wire::Piece piece(uint32_t lane) const { return {theirs_.region, lane * kChunk, kChunk}; }
  // The head of a WRITE, and half of what it announces.
  void drip() {
    each_lane([&](RawClient& lane, uint32_t i) {
      wire::Header head = header(wire::FrameType::kWrite, 1 + i);
      head.piece = piece(i);
      head.piece_count = 1;
      ASSERT_TRUE(lane.send_header(head));
      ASSERT_TRUE(lane.socket().send(std::vector<uint8_t>(kChunk / 2, 0xee)));
    });
  }
  // As much as the window has, and nothing is read.
  void ask_and_not_read() {
    each_lane([&](RawClient& lane, uint32_t i) {
      for (uint32_t chunk = 0; chunk < 16; ++chunk) {
        wire::Header read = header(wire::FrameType::kRead, 1 + i);
        read.chunk = chunk;
        const wire::Piece all = piece(i);
        ASSERT_TRUE(lane.send(read, {&all, 1}));
      }
    });
  }
  void expect_honest_moves(tcpx_op op) {
    const tcpx_remote_region there = describe(engine, ours_.region);
    for (int round = 0; round < 3; ++round) {
      Memory &from = op == TCPX_WRITE ? *mine_.memory : *ours_.memory,
             &to = op == TCPX_WRITE ? *ours_.memory : *mine_.memory;
      fill(from, 0, kBytes, Pattern(10, round), 0);
      Transfer transfer;
      ASSERT_TRUE(succeeded(honest_.prepare(owner_, op, {{mine_.region, 0, kBytes}},
                                            {{&there, 0, kBytes}}, &transfer)));
      ASSERT_TRUE(succeeded(transfer.post(patience(4'000))));
      ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
      EXPECT_EQ(mismatch(to, 0, kBytes, Pattern(10, round), 0), -1);
    }
  }

  Local theirs_, ours_, mine_;
  std::vector<std::unique_ptr<RawClient>> lanes_;
  Engine honest_;
  tcpx_peer owner_ = 0;
};

TEST_F(GpuGreedy, WhoSendsByteByByteHoldsUpNoOthers) {
  drip();
  expect_honest_moves(TCPX_WRITE);
  expect_honest_moves(TCPX_READ);
}

// Chunks of several slots, of which no two are as long.
class GpuGreedySmallSlots : public GpuGreedy {
 protected:
  void SetUp() override { start_with_slots("4K"); }
};

TEST_F(GpuGreedySmallSlots, WhoSendsByteByByteLeavesRoomForWholeChunks) {
  for (uint32_t turn = 0; turn < 3; ++turn) {
    uint32_t sent = 0;
    each_lane([&](RawClient& lane, uint32_t i) {
      if (i % 3 != turn) return;  // some end, and what they leave is taken by others
      const uint64_t bytes = (1 + (7 * i + 5 * turn) % 16) * 4096;
      wire::Header head = header(wire::FrameType::kWrite, 1 + i);
      head.payload_bytes = bytes;
      head.piece = {theirs_.region, i * kChunk, bytes};
      head.piece_count = 1;
      ASSERT_TRUE(lane.send_header(head));
      const uint64_t part = sent++ % 2 == 0 && turn < 2 ? bytes : bytes / 2;
      ASSERT_TRUE(lane.socket().send(std::vector<uint8_t>(part, 0xee)));
      if (part < bytes) return;
      EXPECT_TRUE(lane.send_trailer(TCPX_OK));
    });
    expect_honest_moves(TCPX_WRITE);
    expect_honest_moves(TCPX_READ);
  }
}

TEST_F(GpuGreedy, NorDoesWhoAsksAndDoesNotRead) {
  ask_and_not_read();
  expect_honest_moves(TCPX_READ);
  expect_honest_moves(TCPX_WRITE);
}

// Whatever is on its way there, and whoever sends it.
TEST_F(GpuGreedy, FencesOfOtherMemoryHold) {
  drip();
  const tcpx_remote_region there = describe(engine, ours_.region);
  for (int round = 0; round < 5; ++round) {
    Transfer transfer;
    ASSERT_TRUE(succeeded(honest_.prepare(owner_, TCPX_WRITE, {{mine_.region, 0, kBytes}},
                                          {{&there, 0, kBytes}}, &transfer)));
    ASSERT_TRUE(succeeded(transfer.post()));
    std::this_thread::sleep_for(Ms{3 * round});
    Stopwatch watch;
    ASSERT_TRUE(succeeded(engine.suspend(ours_.region)));
    EXPECT_LT(watch.elapsed(), patience(1'000));
    fill(*ours_.memory, 0, kBytes, Pattern(20, round), 0);
    std::this_thread::sleep_for(Ms{30});
    EXPECT_EQ(mismatch(*ours_.memory, 0, kBytes, Pattern(20, round), 0), -1) << "a late byte";
    ASSERT_TRUE(succeeded(engine.resume(ours_.region)));
    (void)transfer.wait(kLong);
  }
  expect_honest_moves(TCPX_WRITE);
}

}  // namespace
}  // namespace tcpx::test
