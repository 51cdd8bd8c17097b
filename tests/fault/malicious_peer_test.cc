// One peer's malice ends only its own session: an authenticated client that sends what no correct
// client sends.
#include "fault_fixture.h"
#include "memory/region_ids.h"
#include "raw_client.h"

namespace tcpx::test {
namespace {

using wire::FrameType;

class MaliciousPeer : public Fault {
 protected:
  static constexpr uint64_t kBytes = 64 << 10;

  void SetUp() override {
    Fault::SetUp();
    memory = make_local(engine, kBytes, kReadWrite, 5);
    read_only = make_local(engine, kBytes, TCPX_REMOTE_READ, 6);
    write_only = make_local(engine, kBytes, TCPX_REMOTE_WRITE, 7);
    client = join();
  }
  void TearDown() override {
    for (auto [local, seed] : {std::pair{&read_only, 6u}, {&write_only, 7u}}) {
      EXPECT_EQ(mismatch(*local->memory, 0, kBytes, Pattern(seed), 0), -1);
      EXPECT_EQ(local->memory->damage(), "");
    }
    EXPECT_EQ(memory.memory->damage(), "");
    client.reset();
    Fault::TearDown();
  }
  std::unique_ptr<RawClient> join() {
    auto made = std::make_unique<RawClient>(Target::from_info(engine.connection_info()));
    EXPECT_TRUE(made->handshake());
    return made;
  }
  wire::Piece piece(const Local& local, uint64_t offset, uint64_t length) {
    return {local.region, offset, length};
  }
  static wire::Header write_of(uint64_t bytes, uint32_t chunk = 0) {
    wire::Header header = frame_of(FrameType::kWrite, 1);
    header.chunk = chunk;
    header.payload_bytes = bytes;
    return header;
  }
  static wire::Header read_of(uint64_t bytes, uint32_t chunk = 0) {
    wire::Header header = write_of(bytes, chunk);
    header.type = FrameType::kRead;
    return header;
  }
  // Sends a WRITE of zeros and returns the status in its ack.
  tcpx_code write(std::vector<wire::Piece> pieces) {
    uint64_t bytes = 0;
    for (auto& each : pieces) bytes += each.length;
    std::vector<uint8_t> payload(bytes);
    client->send(write_of(bytes, ++chunk), pieces, payload);
    auto frame = client->receive_type(FrameType::kAck);
    if (!frame) return TCPX_INTERNAL;
    EXPECT_EQ(frame->header.chunk, chunk);
    return static_cast<tcpx_code>(frame->header.status);
  }
  // Asks for a READ; OK if data came, else the status of the refusal.
  tcpx_code read(std::vector<wire::Piece> pieces) {
    uint64_t bytes = 0;
    for (auto& each : pieces) bytes += each.length;
    client->send(read_of(bytes, ++chunk), pieces);
    auto frame = client->receive();
    if (!frame) return TCPX_INTERNAL;
    if (frame->header.type == FrameType::kData)
      return static_cast<tcpx_code>(frame->trailer.status);
    EXPECT_EQ(frame->header.type, FrameType::kReadFailed);
    return static_cast<tcpx_code>(frame->header.status);
  }
  void expect_untouched() {
    EXPECT_EQ(mismatch(*memory.memory, 0, kBytes, Pattern(5), 0), -1) << "something landed";
  }

  Local memory, read_only, write_only;
  std::unique_ptr<RawClient> client;
  uint32_t chunk = 0;
};

// First of all the client is a correct one.
TEST_F(MaliciousPeer, TheRawClientCanWriteAndReadProperly) {
  std::vector<uint8_t> payload(3000);
  Pattern(50).fill(payload.data(), payload.size(), 0);
  std::vector<wire::Piece> pieces = {piece(memory, 10, 1000), piece(memory, 5000, 2000)};
  ASSERT_TRUE(client->send(write_of(3000), pieces, payload));
  auto ack = client->receive_type(FrameType::kAck);
  ASSERT_TRUE(ack.has_value());
  EXPECT_EQ(ack->header.status, TCPX_OK);
  EXPECT_EQ(mismatch(*memory.memory, 10, 1000, Pattern(50), 0), -1);
  EXPECT_EQ(mismatch(*memory.memory, 5000, 2000, Pattern(50), 1000), -1);
  ASSERT_TRUE(client->send(read_of(3000, 1), pieces));
  auto data = client->receive_type(FrameType::kData);
  ASSERT_TRUE(data.has_value());
  EXPECT_EQ(data->payload, payload);
  EXPECT_EQ(data->trailer.status, TCPX_OK);
  EXPECT_TRUE(client->ping());
}

TEST_F(MaliciousPeer, RangesOutsideARegionAreRefusedByTheOwnerAndTheConnectionSurvives) {
  uint64_t before = count("rejected_ranges");
  struct Bad {
    uint64_t offset, length;
  };
  uint64_t asked = 0;
  for (Bad bad : {Bad{0, kBytes + 1},
                  {kBytes, 1},
                  {kBytes - 1, 2},
                  {UINT64_MAX, 1},
                  {UINT64_MAX - 100, 4096},
                  {UINT64_MAX - 4095, 4096},
                  {1ull << 63, 4096},
                  {1ull << 32, 1},
                  {0 - kBytes, kBytes}}) {
    SCOPED_TRACE(strf("+{} {}", bad.offset, bad.length));
    EXPECT_EQ(write({piece(memory, bad.offset, bad.length)}), TCPX_OUT_OF_RANGE);
    EXPECT_EQ(read({piece(memory, bad.offset, bad.length)}), TCPX_OUT_OF_RANGE);
    // The same as the second of two: the first is not written either way beyond the region.
    EXPECT_EQ(write({piece(memory, 0, 0), piece(memory, bad.offset, bad.length)}),
              TCPX_OUT_OF_RANGE);
    asked += 3;
    ASSERT_TRUE(client->ping());
  }
  EXPECT_TRUE(reaches("rejected_ranges", before + asked)) << counters(engine).dump();
  expect_untouched();
}

TEST_F(MaliciousPeer, AccessBitsAreHeldAndTheConnectionSurvives) {
  uint64_t before = count("rejected_access");
  EXPECT_EQ(write({piece(read_only, 0, 100)}), TCPX_ACCESS_DENIED);
  EXPECT_EQ(read({piece(write_only, 0, 100)}), TCPX_ACCESS_DENIED);
  EXPECT_EQ(write({piece(memory, 0, 0), piece(read_only, 0, 100)}), TCPX_ACCESS_DENIED);
  EXPECT_EQ(read({piece(read_only, 0, 100)}), TCPX_OK);
  EXPECT_TRUE(client->ping());
  EXPECT_TRUE(reaches("rejected_access", before + 3)) << counters(engine).dump();
}

TEST_F(MaliciousPeer, StaleGenerationsAndUnknownSlotsAreRefusedAndTheConnectionSurvives) {
  wire::Piece right = piece(memory, 0, 100);
  const uint64_t generation = uint64_t{1} << RegionIds::kSlotBits;
  wire::Piece stale = right;
  stale.region -= generation;
  EXPECT_EQ(write({stale}), TCPX_STALE_REGION);
  EXPECT_EQ(read({stale}), TCPX_STALE_REGION);
  for (uint64_t slot : {uint64_t{1000}, generation / 2, generation - 1}) {
    wire::Piece unknown = right;
    unknown.region = unknown.region / generation * generation + slot;
    tcpx_code code = write({unknown});
    EXPECT_TRUE(code == TCPX_NOT_FOUND || code == TCPX_STALE_REGION) << tcpx_code_name(code);
  }
  wire::Piece zero = right;
  zero.region %= generation;
  EXPECT_NE(write({zero}), TCPX_OK);
  zero.region = 0;
  EXPECT_NE(write({zero}), TCPX_OK);
  EXPECT_TRUE(client->ping());
  expect_untouched();
}

// Who knows the id of a region that is gone, or of another one, does not find the one that came in
// its place.
TEST_F(MaliciousPeer, AnIdDoesNotLeadToTheNextOne) {
  std::vector<uint8_t> secret(kBytes, 0x5e);
  tcpx_region known = 0, next = 0;
  ASSERT_TRUE(succeeded(engine.register_memory(secret.data(), kBytes, kReadWrite, &known)));
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(succeeded(engine.deregister(known)));
    ASSERT_TRUE(succeeded(engine.register_memory(secret.data(), kBytes, kReadWrite, &next)));
    for (uint64_t step = 1; step <= 20; ++step)
      for (int shift : {0, 22, 32})
        for (uint64_t guess : {known + (step << shift), known - (step << shift)}) {
          if (guess == memory.region || guess == read_only.region || guess == write_only.region)
            continue;
          ASSERT_NE(read({{guess, 0, 100}}), TCPX_OK) << step << " << " << shift;
        }
    known = next;
  }
  EXPECT_TRUE(client->ping());
  ASSERT_TRUE(succeeded(engine.deregister(known)));
}

// At first everything is answered at once, as for a peer whose region was deregistered under its
// transfers; then so many a second.
TEST_F(MaliciousPeer, WhoIsRefusedAgainAndAgainIsSlowedDownAndNoMore) {
  constexpr int kFree = 4096, kMore = 1500, kPerSecond = 1000, kBatch = 50;
  wire::Piece wrong = piece(memory, kBytes, 1);
  Stopwatch watch;
  int answered = 0;
  while (answered < kFree + kMore) {
    for (int i = 0; i < kBatch; ++i)
      ASSERT_TRUE(client->send(read_of(1, static_cast<uint32_t>(i)), std::span(&wrong, 1)));
    for (int i = 0; i < kBatch; ++i, ++answered) {
      auto frame = client->receive_type(FrameType::kReadFailed, patience(10'000));
      ASSERT_TRUE(frame.has_value()) << "answered: " << answered;
      EXPECT_EQ(frame->header.status, TCPX_OUT_OF_RANGE);
    }
  }
  EXPECT_GE(watch.elapsed(), Ms{1'000 * kMore / kPerSecond - 200});
  EXPECT_GT(count("refusal_holds"), 0u);
  expect_good_peer_works();
  EXPECT_TRUE(client->ping()) << "it is slow, not lost";
  EXPECT_EQ(write({piece(memory, 0, 0)}), TCPX_OK) << "and what it may do it does";
  EXPECT_EQ(count("lanes_lost"), 0u);
}

// Each of these is one change to a correct stream. The lane ends, nobody else notices.
struct Malice {
  const char* name;
  std::function<void(RawClient&, wire::Piece)> act;
};
void send_patched(RawClient& client, wire::Header header, size_t at, uint8_t value) {
  std::array<uint8_t, wire::kHeaderBytes> bytes{};
  wire::encode_header(header, bytes);
  bytes[at] = value;
  client.socket().send(bytes);
}
const std::vector<Malice>& malices() {
  static const std::vector<Malice> table = {
      {"UnknownType",
       [](RawClient& c, wire::Piece) { send_patched(c, frame_of(FrameType::kPing), 4, 200); }},
      {"TypeZero",
       [](RawClient& c, wire::Piece) { send_patched(c, frame_of(FrameType::kPing), 4, 0); }},
      {"WrongMagic",
       [](RawClient& c, wire::Piece) { send_patched(c, frame_of(FrameType::kPing), 0, 'X'); }},
      {"UnknownFlags",
       [](RawClient& c, wire::Piece) { send_patched(c, frame_of(FrameType::kPing), 5, 1); }},
      {"WrongSequence",
       [](RawClient& c, wire::Piece) {
         c.skip_sequence(7);
         c.send(frame_of(FrameType::kPing));
       }},
      {"HugePayload",
       [](RawClient& c, wire::Piece p) {
         wire::Header h = frame_of(FrameType::kWrite, 1);
         h.payload_bytes = UINT64_MAX;
         h.piece_count = 1;
         h.piece = p;
         c.send_header(h);
       }},
      {"ChunkLargerThanAnyEngineSends",
       [](RawClient& c, wire::Piece p) {
         wire::Header h = frame_of(FrameType::kWrite, 1);
         h.payload_bytes = wire::kMaxChunkBytes + 1;
         h.piece_count = 1;
         h.piece = p;
         c.send_header(h);
       }},
      {"ReadLargerThanAnyEngineAsks",
       [](RawClient& c, wire::Piece p) {
         wire::Header h = frame_of(FrameType::kRead, 1);
         h.payload_bytes = wire::kMaxChunkBytes + 1;
         h.piece_count = 1;
         h.piece = p;
         c.send_header(h);
       }},
      {"TooManyPieces",
       [](RawClient& c, wire::Piece) {
         wire::Header h = frame_of(FrameType::kWrite, 1);
         h.piece_count = wire::kMaxPieces + 1;
         c.send_header(h);
       }},
      {"NoPieces",
       [](RawClient& c, wire::Piece) { c.send_header(frame_of(FrameType::kWrite, 1)); }},
      {"PieceLengthsThatWrapAround",
       [](RawClient& c, wire::Piece p) {
         wire::Header h = frame_of(FrameType::kWrite, 1);
         h.payload_bytes = 100;
         wire::Piece big = p;
         big.length = UINT64_MAX;
         p.length = 101;
         std::vector<wire::Piece> pieces = {big, p};
         c.send(h, pieces, std::vector<uint8_t>(100));
       }},
      {"PieceLengthsBelowThePayload",
       [](RawClient& c, wire::Piece p) {
         wire::Header h = frame_of(FrameType::kWrite, 1);
         h.payload_bytes = 100;
         p.length = 10;
         std::vector<wire::Piece> pieces = {p, p};
         c.send(h, pieces, std::vector<uint8_t>(100));
       }},
      {"HugeNotification",
       [](RawClient& c, wire::Piece) {
         wire::Header h = frame_of(FrameType::kNotify, 1);
         h.payload_bytes = 1ull << 40;
         c.send_header(h);
       }},
      {"NoTrailer",
       [](RawClient& c, wire::Piece p) {
         wire::Header h = frame_of(FrameType::kWrite, 1);
         h.payload_bytes = 0;
         h.piece_count = 1;
         h.piece = p;
         c.send_header(h);
         c.socket().send(std::vector<uint8_t>(wire::kTrailerBytes, 0xee));
       }},
      {"LaneThatCannotExist",
       [](RawClient& c, wire::Piece) {
         wire::Header h = frame_of(FrameType::kLaneDown);
         h.chunk = 64;
         c.send_header(h);
       }},
      {"RandomBytes",
       [](RawClient& c, wire::Piece) {
         std::vector<uint8_t> noise(100'000);
         Pattern(99).fill(noise.data(), noise.size(), 0);
         c.socket().send(noise);
       }},
  };
  return table;
}

class BadFrame : public MaliciousPeer, public ::testing::WithParamInterface<size_t> {};

TEST_P(BadFrame, EndsOnlyItsOwnSessionAndIsCounted) {
  uint64_t before = count("protocol_errors");
  auto other = join();  // another session of the same kind
  malices()[GetParam()].act(*client, piece(memory, 0, 100));
  EXPECT_TRUE(client->closes()) << "a lane that lost its order is closed";
  EXPECT_TRUE(other->ping());
  EXPECT_TRUE(reaches("protocol_errors", before + 1)) << counters(engine).dump();
  expect_untouched();
}

INSTANTIATE_TEST_SUITE_P(Each, BadFrame, ::testing::Range<size_t>(0, malices().size()),
                         [](const auto& each) { return malices()[each.param].name; });

// Answers to questions that were never asked, or no longer matter.
TEST_F(MaliciousPeer, AnswersToNothingAreDroppedOrEndTheSessionNeverMore) {
  auto data = frame_of(FrameType::kData, 12345);
  data.payload_bytes = 1000;
  auto ack = frame_of(FrameType::kAck, 12345);
  ack.chunk = 77;
  auto failed = frame_of(FrameType::kReadFailed, 12345);
  failed.status = TCPX_OUT_OF_RANGE;
  auto confirmed = frame_of(FrameType::kNotifyAck, 999);
  auto pong = frame_of(FrameType::kPong, 1, 2);
  auto down = frame_of(FrameType::kLaneDownAck);
  down.chunk = 5;
  std::vector<uint8_t> payload(1000, 0xbb);
  for (const wire::Header& header : {data, ack, failed, confirmed, pong, down}) {
    SCOPED_TRACE(static_cast<int>(header.type));
    uint64_t before = count("stale_frames") + count("protocol_errors");
    auto other = join();
    other->send(
        header, {},
        header.has_payload() ? std::span<const uint8_t>(payload) : std::span<const uint8_t>());
    bool alive = other->ping();
    auto counted = [&] { return count("stale_frames") + count("protocol_errors") > before; };
    bool must = !alive || header.type == FrameType::kData || header.type == FrameType::kAck;
    EXPECT_TRUE(!must || eventually(counted, patience(2'000)))
        << "stale frames, and sessions that are ended for them, are counted";
    ASSERT_TRUE(client->ping());
  }
  expect_untouched();
}

// Every frame about a lost lane takes a lock that all lanes of the session want. Honest peers have
// few.
TEST_F(MaliciousPeer, TalkAboutLostLanesHasAnEnd) {
  constexpr size_t kMost = 2 * wire::kMaxLanes * wire::kMaxLanes;
  for (FrameType type : {FrameType::kLaneDown, FrameType::kLaneDownAck}) {
    SCOPED_TRACE(static_cast<int>(type));
    auto other = join();
    wire::Header header = frame_of(type);
    header.chunk = 63;
    ASSERT_TRUE(other->socket().send(other->burst(header, kMost)));
    ASSERT_TRUE(other->ping());
    uint64_t before = count("protocol_errors");
    ASSERT_TRUE(other->send_header(header));
    EXPECT_TRUE(other->closes());
    EXPECT_TRUE(reaches("protocol_errors", before + 1)) << counters(engine).dump();
    EXPECT_TRUE(client->ping());
  }
}

TEST_F(MaliciousPeer, AskingForMuchAndReadingNothingStopsOnlyItself) {
  uint64_t rss = rss_bytes();
  std::vector<wire::Piece> all = {piece(read_only, 0, kBytes)};
  for (uint32_t i = 0; i < 20'000; ++i) {
    wire::Header header = read_of(kBytes, i);
    header.piece = all[0];
    header.piece_count = 1;
    if (!client->socket().send(
            [&] {
              std::array<uint8_t, wire::kHeaderBytes> bytes{};
              header.sequence = i;
              wire::encode_header(header, bytes);
              return bytes;
            }(),
            Ms{50}))
      break;  // refused or back-pressured: both fine
    if (i % 2'000 == 0) expect_good_peer_works();
  }
  expect_good_peer_works();
  if (!kSanitized) {
    EXPECT_LT(rss_bytes(), rss + (64 << 20));
  }
}

TEST_F(MaliciousPeer, HalfAFrameForEverDoesNotHoldTheOthers) {
  wire::Header header = write_of(kBytes);
  header.piece_count = 1;
  header.piece = piece(memory, 0, kBytes);
  client->send_header(header);
  client->socket().send(std::vector<uint8_t>(1000, 0xaa));
  for (int i = 0; i < 5; ++i) {
    expect_good_peer_works();
    std::this_thread::sleep_for(Ms{20});
  }
  // It answers nothing either, so it is given up in the end.
  EXPECT_TRUE(client->closes(kNoticed));
}

// The region goes while its bytes arrive: the call returns at once, the rest lands nowhere.
TEST_F(MaliciousPeer, DeregisterDoesNotWaitForABodyThatNeverComes) {
  wire::Header header = write_of(kBytes);
  header.piece_count = 1;
  header.piece = piece(memory, 0, kBytes);
  client->send_header(header);
  client->socket().send(std::vector<uint8_t>(kBytes / 2, 0xaa));
  std::this_thread::sleep_for(Ms{30});
  Stopwatch watch;
  ASSERT_TRUE(succeeded(engine.deregister(memory.region)));
  EXPECT_LT(watch.elapsed(), patience(500));
  Pattern sentinel(500);
  fill(*memory.memory, 0, kBytes, sentinel, 0);
  client->socket().send(std::vector<uint8_t>(kBytes / 2, 0xbb));
  client->send_trailer();
  auto ack = client->receive_type(FrameType::kAck);
  ASSERT_TRUE(ack.has_value()) << "the connection survives";
  EXPECT_TRUE(ack->header.status == TCPX_REGION_REVOKED || ack->header.status == TCPX_STALE_REGION)
      << ack->header.status;
  EXPECT_EQ(mismatch(*memory.memory, 0, kBytes, sentinel, 0), -1) << "a late byte landed";
  EXPECT_TRUE(client->ping());
}

TEST_F(MaliciousPeer, ASenderThatGivesAChunkUpIsNotBelievedToHaveWritten) {
  wire::Header header = write_of(1000);
  header.piece_count = 1;
  header.piece = piece(memory, 0, 1000);
  client->send_header(header);
  client->socket().send(std::vector<uint8_t>(1000, 0));
  client->send_trailer(TCPX_CANCELLED);
  auto ack = client->receive_type(FrameType::kAck);
  ASSERT_TRUE(ack.has_value());
  EXPECT_NE(ack->header.status, TCPX_OK);
  EXPECT_TRUE(client->ping());
}

TEST_F(MaliciousPeer, ARepeatedNotificationIsDeliveredOnce) {
  std::string text = "once";
  std::vector<uint8_t> payload(text.begin(), text.end());
  for (int i = 0; i < 3; ++i) {
    wire::Header header = frame_of(FrameType::kNotify, 1);
    header.payload_bytes = payload.size();
    ASSERT_TRUE(client->send(header, {}, payload));
    ASSERT_TRUE(client->receive_type(FrameType::kNotifyAck).has_value()) << "each is confirmed";
  }
  Notification got;
  ASSERT_TRUE(succeeded(engine.next_notification(&got, kLong)));
  EXPECT_EQ(got.view(), "once");
  EXPECT_TRUE(engine.next_notification(&got, Ms{50}).in_progress());
}

}  // namespace
}  // namespace tcpx::test
