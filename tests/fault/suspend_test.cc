// Suspend and resume, against peers whose transfers began before: nothing of those reaches the
// memory again, whatever the owner had seen of them and however soon the region comes back.
#include "raw_lanes.h"

namespace tcpx::test {
namespace {

using wire::FrameType;

constexpr uint64_t kFirstEpoch = 1;

// A peer that the test speaks for writes to an engine's memory.
class Suspend : public RawLanes {
 protected:
  static constexpr uint64_t kBytes = 4'000;

  void SetUp() override {
    start({{"peer_timeout", time_option(20'000)}});
    memory = make_local(engine, kBytes, kReadWrite, 5);
    ASSERT_TRUE(first->handshake());
    ASSERT_TRUE(first->ping());
    id = describe(engine, memory.region).id;
  }
  wire::Piece piece(uint64_t offset, uint64_t length) const { return {id, offset, length}; }
  wire::Header chunk(uint64_t transfer, uint32_t number, uint64_t epoch, uint64_t length) {
    wire::Header header = frame_of(FrameType::kWrite, transfer, epoch);
    header.chunk = number;
    header.payload_bytes = length;
    return header;
  }
  tcpx_code write(uint64_t transfer, uint32_t number, uint64_t epoch, wire::Piece to) {
    std::vector<uint8_t> payload(to.length, 0xee);
    wire::Header header = chunk(transfer, number, epoch, to.length);
    EXPECT_TRUE(first->send(header, std::span(&to, 1), payload));
    auto ack = first->receive_type(FrameType::kAck);
    return ack ? static_cast<tcpx_code>(ack->header.status) : TCPX_PEER_TIMEOUT;
  }
  tcpx_code read(uint64_t transfer, uint64_t epoch, wire::Piece from) {
    wire::Header header = frame_of(FrameType::kRead, transfer, epoch);
    header.payload_bytes = from.length;
    EXPECT_TRUE(first->send(header, std::span(&from, 1)));
    auto answer = first->receive();
    if (!answer) return TCPX_PEER_TIMEOUT;
    return answer->header.type == FrameType::kData ? TCPX_OK
                                                   : static_cast<tcpx_code>(answer->header.status);
  }
  // Owns the memory from now on.
  void take_over() { fill(*memory.memory, 0, kBytes, kOurs, 0); }
  void expect_ours() { EXPECT_EQ(mismatch(*memory.memory, 0, kBytes, kOurs, 0), -1); }
  // What is posted once the peer has heard of the resume is served.
  void expect_serves_anew(uint64_t transfer) {
    EXPECT_TRUE(first->ping()) << "and it reads what the engine has to say";
    EXPECT_EQ(write(transfer, 0, first->epoch, piece(0, 100)), TCPX_OK);
    EXPECT_EQ(read(transfer + 1, first->epoch, piece(0, 100)), TCPX_OK);
  }

  const Pattern kOurs{77, 1};
  Local memory;
  uint64_t id = 0;
};

TEST_F(Suspend, TheRestOfATransferThatWasHalfWayInAChunkIsRefused) {
  wire::Header half = chunk(1, 0, kFirstEpoch, 1'000);
  half.piece_count = 1;
  half.piece = piece(0, 1'000);
  ASSERT_TRUE(first->send_header(half));
  ASSERT_TRUE(first->socket().send(std::vector<uint8_t>(500, 0xee)));
  ASSERT_TRUE(eventually([&] { return memory.data()[499] == 0xee; }));
  ASSERT_TRUE(succeeded(engine.suspend(memory.region)));
  take_over();
  ASSERT_TRUE(succeeded(engine.resume(memory.region)));
  ASSERT_TRUE(first->socket().send(std::vector<uint8_t>(500, 0xee)));
  ASSERT_TRUE(first->send_trailer());
  auto ack = first->receive_type(FrameType::kAck);
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->header.status, TCPX_STALE_REGION);
  EXPECT_EQ(write(1, 1, kFirstEpoch, piece(1'000, 1'000)), TCPX_STALE_REGION);
  EXPECT_EQ(read(2, kFirstEpoch, piece(1'000, 1'000)), TCPX_STALE_REGION);
  expect_ours();
  expect_serves_anew(3);
}

TEST_F(Suspend, ATransferOfWhichNothingHasComeIsRefusedToo) {
  ASSERT_TRUE(succeeded(engine.suspend(memory.region)));
  take_over();
  ASSERT_TRUE(succeeded(engine.resume(memory.region)));
  EXPECT_EQ(write(1, 0, kFirstEpoch, piece(0, 1'000)), TCPX_STALE_REGION);
  EXPECT_EQ(read(2, kFirstEpoch, piece(0, 1'000)), TCPX_STALE_REGION);
  expect_ours();
  expect_serves_anew(3);
}

// What a peer names while the region is suspended changes nothing.
TEST_F(Suspend, NamingOtherGenerationsMeanwhileDoesNotHelp) {
  ASSERT_TRUE(succeeded(engine.suspend(memory.region)));
  EXPECT_EQ(write(1, 0, kFirstEpoch, piece(0, 100)), TCPX_STALE_REGION);
  wire::Piece before = piece(0, 100);
  before.region -= uint64_t{1} << 32;
  EXPECT_EQ(write(2, 0, kFirstEpoch, before), TCPX_STALE_REGION);
  take_over();
  ASSERT_TRUE(succeeded(engine.resume(memory.region)));
  EXPECT_EQ(write(1, 1, kFirstEpoch, piece(100, 100)), TCPX_STALE_REGION);
  expect_ours();
  expect_serves_anew(3);
}

TEST_F(Suspend, EveryTimeAnew) {
  uint64_t before = kFirstEpoch;
  for (uint64_t round = 1; round < 5; ++round) {
    ASSERT_TRUE(succeeded(engine.suspend(memory.region)));
    take_over();
    ASSERT_TRUE(succeeded(engine.resume(memory.region)));
    EXPECT_EQ(write(10 * round, 0, before, piece(0, 100)), TCPX_STALE_REGION);
    expect_ours();
    expect_serves_anew(10 * round + 1);
    EXPECT_GT(first->epoch, before);
    before = first->epoch;
  }
}

// Others are not touched by it.
TEST_F(Suspend, RegionsThatWereNotSuspendedGoOn) {
  Local other = make_local(engine, kBytes, kReadWrite, 6);
  uint64_t other_id = describe(engine, other.region).id;
  ASSERT_TRUE(succeeded(engine.suspend(memory.region)));
  ASSERT_TRUE(succeeded(engine.resume(memory.region)));
  wire::Piece there{other_id, 0, 100};
  EXPECT_EQ(write(1, 0, kFirstEpoch, there), TCPX_OK);
}

TEST_F(Suspend, ASessionThatBeginsLaterKnowsFromTheStart) {
  ASSERT_TRUE(succeeded(engine.suspend(memory.region)));
  ASSERT_TRUE(succeeded(engine.resume(memory.region)));
  auto later = std::make_unique<RawClient>(target);
  ASSERT_TRUE(later->handshake());
  EXPECT_EQ(later->epoch, later->welcome.epoch);
  first = std::move(later);
  EXPECT_EQ(write(1, 0, first->epoch, piece(0, 100)), TCPX_OK);
}

// ---- the initiator's side: a transfer is as old as its post -------------------------------------

class SuspendInitiator : public RawLanes {};

TEST_F(SuspendInitiator, ChunksCarryWhatWasKnownWhenTheyWerePosted) {
  constexpr uint64_t kBytes = 8'192;
  start({{"peer_timeout", time_option(20'000)}, {"chunk_bytes", "4K"}, {"window", "1"}});
  ASSERT_TRUE(first->handshake());
  ASSERT_TRUE(first->ping());
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(engine.accept(&peer, kLong)));
  Local local = make_local(engine, kBytes, 0, 1);
  tcpx_remote_region remote = region(kBytes);
  uint64_t known = kFirstEpoch;
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    Transfer transfer;
    ASSERT_TRUE(succeeded(
        engine.prepare(peer, op, {{local.region, 0, kBytes}}, {{&remote, 0, kBytes}}, &transfer)));
    for (int posts = 0; posts < 2; ++posts) {
      ASSERT_TRUE(succeeded(transfer.post()));
      for (int chunks = 0; chunks < 2; ++chunks) {
        auto frame = first->receive_type(op == TCPX_WRITE ? FrameType::kWrite : FrameType::kRead);
        ASSERT_TRUE(frame.has_value());
        EXPECT_EQ(frame->header.aux, known) << "as it was posted";
        ASSERT_TRUE(first->send(frame_of(FrameType::kPing, known + 1)));  // the owner has resumed
        ASSERT_TRUE(first->ping()) << "it has heard that";
        wire::Header answer =
            frame_of(op == TCPX_WRITE ? FrameType::kAck : FrameType::kData, frame->header.transfer);
        answer.chunk = frame->header.chunk;
        std::vector<uint8_t> data(op == TCPX_READ ? frame->header.payload_bytes : 0);
        answer.payload_bytes = data.size();
        ASSERT_TRUE(first->send(answer, {}, data));
      }
      ++known;
      ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    }
  }
  engine.destroy();
}

// ---- real peers ---------------------------------------------------------------------------------

// One that is stopped is waited for once, and changes nothing for the others.
TEST(SuspendStopped, AStoppedPeerHoldsUpOneResumeAndNoMore) {
  Options patient = fault_options({{"peer_timeout", "60s"}, {"lane_timeout", "50s"}});
  Engine owner = make_engine(patient);
  Local memory = make_local(owner, 100'000, kReadWrite, 5);
  Bytes description;
  ASSERT_TRUE(succeeded(owner.export_region(memory.region, &description)));
  Peer stopped, other;
  std::string there[2];
  Peer* peers[] = {&stopped, &other};
  for (int i = 0; i < 2; ++i) {
    peers[i]->create(patient);
    peers[i]->memory("src", 100'000, 0, 6);
    there[i] = (*peers[i])("connect {}", to_hex(owner.connection_info()));
    (*peers[i])("wait_peer {} 5000", there[i]);
    (*peers[i])("import r {}", to_hex(description));
    (*peers[i])("prepare t write {} src 0 r 0 1000", there[i]);
  }
  // It was refused before: that is no reason to wait for it longer.
  ASSERT_TRUE(succeeded(owner.suspend(memory.region)));
  stopped("post t 5000 none");
  EXPECT_EQ(stopped.call("wait t 5000").code, TCPX_STALE_REGION);
  stopped.freeze();
  Stopwatch watch;
  ASSERT_TRUE(succeeded(owner.resume(memory.region)));
  EXPECT_LT(watch.elapsed(), patience(2'500));
  constexpr int kRounds = 10;
  watch = Stopwatch();
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_TRUE(succeeded(owner.suspend(memory.region)));
    ASSERT_TRUE(succeeded(owner.resume(memory.region)));
    other("post t 5000 none");
    EXPECT_TRUE(other.call("wait t 5000").ok()) << "posted after the resume, it is served";
  }
  EXPECT_LT(watch.elapsed(), patience(3'000)) << "it is not waited for again";
  Bytes again;
  ASSERT_TRUE(succeeded(owner.export_region(memory.region, &again)));
  EXPECT_EQ(again, description);
  stopped.thaw();
  EXPECT_TRUE(eventually([&] {
    stopped("post t 5000 none");
    return stopped.call("wait t 5000").ok();
  })) << "it hears of the resumes when it goes on";
}

}  // namespace
}  // namespace tcpx::test
