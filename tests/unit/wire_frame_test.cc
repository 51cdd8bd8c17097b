#include "wire/frame.h"

#include "../support/env.h"
#include "wire/handshake.h"
#include "wire_test_util.h"

namespace tcpx::wire {
namespace {

using test::fails_with;
using HeaderBytes = std::array<uint8_t, kHeaderBytes>;
using TrailerBytes = std::array<uint8_t, kTrailerBytes>;

constexpr uint64_t kHuge = UINT64_MAX;

HeaderBytes encoded(const Header& header) {
  HeaderBytes bytes;
  bytes.fill(0xee);  // a byte the encoder forgets does not look like zero
  encode_header(header, bytes);
  return bytes;
}

Status decode_it(const HeaderBytes& bytes, Header* out, const Limits& limits = {}) {
  return decode_header(bytes, limits, out);
}

Status recode(const Header& header, const Limits& limits = {}) {
  Header out;
  return decode_it(encoded(header), &out, limits);
}

std::vector<uint8_t> table_of(std::span<const Piece> pieces) {
  std::vector<uint8_t> bytes(pieces.size() * kPieceBytes);
  encode_pieces(pieces, bytes.data());
  return bytes;
}

// The smallest valid header of each type.
Header minimal(FrameType type) {
  Header header;
  header.type = type;
  if (type == FrameType::kWrite || type == FrameType::kRead) header.piece_count = 1;
  if (type == FrameType::kReadFailed) header.status = TCPX_OUT_OF_RANGE;
  return header;
}

std::vector<FrameType> all_types() {
  std::vector<FrameType> types;
  for (int i = 1; i <= static_cast<int>(FrameType::kNotifyBehindAck); ++i) {
    types.push_back(static_cast<FrameType>(i));
  }
  return types;
}

// ---- golden bytes: if one of these fails, the wire format changed and kWireVersion has to -------

TEST(WireFrameGolden, WriteOfOnePiece) {
  Header header;
  header.type = FrameType::kWrite;
  header.sequence = 0x04030201;
  header.chunk = 0x14131211;
  header.transfer = 0x2827262524232221;
  header.payload_bytes = 0x3000;
  header.piece_count = 1;
  header.aux = 0x7877767574737271;
  header.piece = {0x5453525144434241, 0x6867666564636261, 0x3000};
  EXPECT_EQ(to_hex(encoded(header)),
            "5443505801000000010203041112131421222324252627280030000000000000"
            "7172737475767778010000004142434451525354000000006162636465666768");
  Header back;
  ASSERT_TRUE(decode_it(encoded(header), &back).ok());
  EXPECT_EQ(back, header);
}

TEST(WireFrameGolden, ReadOfTwoPieces) {
  Header header;
  header.type = FrameType::kRead;
  header.sequence = 7;
  header.chunk = 3;
  header.transfer = 9;
  header.payload_bytes = 0x30;
  header.piece_count = 2;
  EXPECT_EQ(to_hex(encoded(header)),
            "5443505802000000070000000300000009000000000000003000000000000000"
            "0000000000000000020000000000000000000000000000000000000000000000");
  const std::array<Piece, 2> pieces = {Piece{0x0000000200000001, 3, 0x10},
                                       Piece{0xfffffffeffffffff, kHuge, 0x20}};
  EXPECT_EQ(to_hex(table_of(pieces)),
            "010000000200000003000000000000001000000000000000fffffffffeffffff"
            "ffffffffffffffff2000000000000000");
}

TEST(WireFrameGolden, AnswersAndTrailer) {
  Header ack;
  ack.type = FrameType::kAck;
  ack.status = TCPX_ACCESS_DENIED;
  ack.sequence = 2;
  ack.chunk = 6;
  ack.transfer = 8;
  EXPECT_EQ(to_hex(encoded(ack)),
            "5443505804000500020000000600000008000000000000000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000");
  Header pong;
  pong.type = FrameType::kPong;
  pong.sequence = 1;
  pong.transfer = 0x1122334455667788;
  pong.aux = 0x99aabbccddeeff00;
  EXPECT_EQ(to_hex(encoded(pong)),
            "544350580b000000010000000000000088776655443322110000000000000000"
            "00ffeeddccbbaa99000000000000000000000000000000000000000000000000");
  Header ping;
  ping.type = FrameType::kPing;
  ping.sequence = 4;
  ping.transfer = 0x1122334455667788;
  ping.aux = 0x99aabbccddeeff00;
  EXPECT_EQ(to_hex(encoded(ping)),
            "544350580a000000040000000000000088776655443322110000000000000000"
            "00ffeeddccbbaa99000000000000000000000000000000000000000000000000");
  TrailerBytes trailer;
  trailer.fill(0xee);
  encode_trailer({TCPX_CANCELLED, 0xa1b2c3d4}, trailer);
  EXPECT_EQ(to_hex(trailer), "544350540f000000d4c3b2a100000000");
}

TEST(WireFrameGolden, TypeNumbers) {
  const std::vector<FrameType> in_order = {
      FrameType::kWrite,     FrameType::kRead,         FrameType::kData,
      FrameType::kAck,       FrameType::kReadFailed,   FrameType::kNotify,
      FrameType::kNotifyAck, FrameType::kLaneDown,     FrameType::kLaneDownAck,
      FrameType::kPing,      FrameType::kPong,         FrameType::kBye,
      FrameType::kCarrier,   FrameType::kNotifyBehind, FrameType::kNotifyBehindAck};
  EXPECT_EQ(in_order, all_types());
}

// ---- header -------------------------------------------------------------------------------------

TEST(WireFrameHeader, MinimalHeaderOfEveryTypeComesBack) {
  for (FrameType type : all_types()) {
    Header back;
    const Status status = decode_it(encoded(minimal(type)), &back);
    EXPECT_TRUE(status.ok()) << static_cast<int>(type) << ' ' << status.to_string();
    EXPECT_EQ(back, minimal(type));
  }
}

TEST(WireFrameHeader, EachTypeAcceptsExactlyItsFields) {
  struct FieldTest {
    const char* name;
    std::string_view types;  // w r d a f n N l L p P b c t T, in the order of the types
    void (*set)(Header*);
  };
  const FieldTest fields[] = {
      {"status", "...af.N.......T", [](Header* h) { h->status = 2; }},  // a code or a verdict
      {"sequence", "wrdafnNlLpPbctT", [](Header* h) { h->sequence = 0xffffffff; }},
      {"transfer", "wrdafnN.LpP..tT", [](Header* h) { h->transfer = kHuge; }},
      {"chunk", "wrdaf..lL....t.", [](Header* h) { h->chunk = kMaxLanes - 1; }},
      {"piece_count", "wr.............", [](Header* h) { h->piece_count = 2; }},
      {"payload_bytes", "wrd..n......ct.", [](Header* h) { h->payload_bytes = 1; }},
      {"aux", "wr......LpP....", [](Header* h) { h->aux = kHuge; }},
  };
  for (const FieldTest& field : fields) {
    for (FrameType type : all_types()) {
      Header header = minimal(type);
      field.set(&header);
      const bool allowed = field.types[static_cast<size_t>(type) - 1] != '.';
      if (allowed) {
        const Status status = recode(header);
        EXPECT_TRUE(status.ok()) << field.name << ' ' << status.to_string();
      } else {
        EXPECT_TRUE(fails_with(recode(header), TCPX_PROTOCOL_ERROR, field.name))
            << static_cast<int>(type);
      }
    }
  }
}

TEST(WireFrameHeader, PieceIsForHeadersWithOnePieceOnly) {
  const size_t piece_offsets[] = {44, 51, 56};  // region, first and last byte; offset
  for (FrameType type : all_types()) {
    for (size_t offset : piece_offsets) {
      HeaderBytes bytes = encoded(minimal(type));
      bytes[offset] = 1;
      Header out;
      const bool has_piece = minimal(type).piece_count == 1;
      EXPECT_EQ(decode_it(bytes, &out).ok(), has_piece) << static_cast<int>(type);
      if (!has_piece) continue;
      bytes[40] = 2;  // piece_count: now the table has the pieces
      EXPECT_TRUE(fails_with(decode_it(bytes, &out), TCPX_PROTOCOL_ERROR, "piece must be zero"));
    }
  }
}

TEST(WireFrameHeader, LengthOfTheSinglePieceIsThePayload) {
  Header header = minimal(FrameType::kRead);
  header.payload_bytes = 4096;
  header.piece = {1, 3, 77};  // a length the encoder does not send
  Header back;
  ASSERT_TRUE(decode_it(encoded(header), &back).ok());
  EXPECT_EQ(back.piece, (Piece{1, 3, 4096}));
}

TEST(WireFrameHeader, PieceCountRange) {
  for (FrameType type : {FrameType::kWrite, FrameType::kRead}) {
    Header header = minimal(type);
    header.piece_count = kMaxPieces;
    EXPECT_TRUE(recode(header).ok());
    for (uint32_t count : {uint32_t{0}, kMaxPieces + 1, UINT32_MAX}) {
      header.piece_count = count;
      EXPECT_TRUE(fails_with(recode(header), TCPX_PROTOCOL_ERROR, "piece_count")) << count;
    }
  }
}

TEST(WireFrameHeader, PayloadIsBoundedByTheLimits) {
  Limits limits;
  limits.max_chunk_bytes = 5000;
  limits.max_notify_bytes = 100;
  for (FrameType type : {FrameType::kWrite, FrameType::kRead, FrameType::kData, FrameType::kNotify,
                         FrameType::kNotifyBehind}) {
    Header header = minimal(type);
    const uint64_t most = header.is_notice() ? 100 : 5000;
    for (uint64_t bytes : {uint64_t{0}, uint64_t{1}, most}) {
      header.payload_bytes = bytes;
      EXPECT_TRUE(recode(header, limits).ok()) << static_cast<int>(type) << ' ' << bytes;
    }
    for (uint64_t bytes : {most + 1, uint64_t{1} << 32, uint64_t{1} << 63, kHuge}) {
      header.payload_bytes = bytes;
      EXPECT_TRUE(fails_with(recode(header, limits), TCPX_PROTOCOL_ERROR, "payload_bytes"));
    }
  }
}

TEST(WireFrameHeader, NoLimitRaisesTheFixedBoundOfAChunk) {
  Limits limits;
  limits.max_chunk_bytes = kHuge;
  Header header = minimal(FrameType::kData);
  header.payload_bytes = kMaxChunkBytes;
  EXPECT_TRUE(recode(header, limits).ok());
  header.payload_bytes = kMaxChunkBytes + 1;
  EXPECT_TRUE(fails_with(recode(header, limits), TCPX_PROTOCOL_ERROR, "payload_bytes"));
}

TEST(WireFrameHeader, StatusIsAKnownEnd) {
  Header header = minimal(FrameType::kAck);
  for (uint32_t code = 0; code <= 0xffff; ++code) {
    header.status = static_cast<uint16_t>(code);
    const bool known = code <= TCPX_COPY_FAILED && code != TCPX_IN_PROGRESS;
    ASSERT_EQ(recode(header).ok(), known) << code;
  }
  header = minimal(FrameType::kReadFailed);
  header.status = TCPX_OK;
  EXPECT_TRUE(fails_with(recode(header), TCPX_PROTOCOL_ERROR, "status"));
}

TEST(WireFrameHeader, AnswersToNotificationsSayAVerdict) {
  for (FrameType type : {FrameType::kNotifyAck, FrameType::kNotifyBehindAck})
    for (uint32_t status = 0; status <= 0xffff; ++status) {
      Header header = minimal(type);
      header.status = static_cast<uint16_t>(status);
      ASSERT_EQ(recode(header).ok(), status <= static_cast<uint32_t>(NoticeVerdict::kNever))
          << status;
    }
}

TEST(WireFrameHeader, EveryCodeOfTheApiIsAKnownStatus) {
  // A code added to tcpx.h has to be added to is_result (and to the wire version's list).
  const std::string unknown = code_name(static_cast<tcpx_code>(31));
  EXPECT_EQ(code_name(static_cast<tcpx_code>(TCPX_COPY_FAILED + 1)), unknown);
  for (int code = 0; code <= TCPX_COPY_FAILED; ++code) {
    EXPECT_NE(code_name(static_cast<tcpx_code>(code)), unknown) << code;
  }
}

TEST(WireFrameHeader, LaneIndexIsBounded) {
  for (FrameType type : {FrameType::kLaneDown, FrameType::kLaneDownAck}) {
    Header header = minimal(type);
    header.chunk = kMaxLanes;
    EXPECT_TRUE(fails_with(recode(header), TCPX_PROTOCOL_ERROR, "lane"));
  }
}

TEST(WireFrameHeader, UnknownTypesFlagsMagicAndReservedBytes) {
  Header out;
  HeaderBytes bytes = encoded(minimal(FrameType::kBye));
  for (int type = 0; type < 256; ++type) {
    bytes[4] = static_cast<uint8_t>(type);
    if (type >= 1 && type <= static_cast<int>(FrameType::kNotifyBehindAck)) continue;
    EXPECT_TRUE(fails_with(decode_it(bytes, &out), TCPX_PROTOCOL_ERROR, "type")) << type;
  }
  for (FrameType type : all_types()) {
    for (size_t offset : {0, 1, 2, 3, 5, 52, 53, 54, 55}) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes = encoded(minimal(type));
        bytes[offset] = static_cast<uint8_t>(bytes[offset] ^ (1 << bit));
        const char* text = offset < 4 ? "magic" : offset == 5 ? "flags" : "reserved";
        ASSERT_TRUE(fails_with(decode_it(bytes, &out), TCPX_PROTOCOL_ERROR, text));
      }
    }
  }
}

TEST(WireFrameHeader, UniformBytesAreNoHeaderAndOutputStays) {
  Header out = minimal(FrameType::kPing);
  out.aux = 42;
  const Header before = out;
  for (int value : {0x00, 0x55, 0xff}) {
    HeaderBytes bytes;
    bytes.fill(static_cast<uint8_t>(value));
    const Status status = decode_it(bytes, &out);
    EXPECT_EQ(status.code(), TCPX_PROTOCOL_ERROR);
    EXPECT_EQ(status.blast(), TCPX_BLAST_LANE);
  }
  EXPECT_EQ(out, before);
}

// ---- pieces -------------------------------------------------------------------------------------

Status decode_lengths(std::vector<uint64_t> lengths, uint64_t payload) {
  std::vector<Piece> pieces;
  for (uint64_t length : lengths) pieces.push_back({1, 0, length});
  Header header = minimal(FrameType::kWrite);
  header.piece_count = static_cast<uint32_t>(pieces.size());
  header.payload_bytes = payload;
  std::vector<Piece> out(pieces.size());
  Status status = decode_pieces(header, table_of(pieces), out);
  if (status.ok()) {
    EXPECT_EQ(out, pieces);
  }
  return status;
}

TEST(WireFramePieces, LengthsAddUpToThePayload) {
  EXPECT_TRUE(decode_lengths({1, 2}, 3).ok());
  EXPECT_TRUE(decode_lengths({0, 0, 0}, 0).ok());
  EXPECT_TRUE(decode_lengths({0, 5, 0}, 5).ok());
  EXPECT_TRUE(decode_lengths(std::vector<uint64_t>(kMaxPieces, 16), kMaxPieces * 16).ok());
  EXPECT_TRUE(fails_with(decode_lengths({1, 2}, 4), TCPX_PROTOCOL_ERROR, "short"));
  EXPECT_TRUE(fails_with(decode_lengths({1, 2}, 2), TCPX_PROTOCOL_ERROR, "piece 1"));
  EXPECT_TRUE(fails_with(decode_lengths({3, 0}, 2), TCPX_PROTOCOL_ERROR, "piece 0"));
}

TEST(WireFramePieces, SumsThatWrapAroundAreRefused) {
  // Each of these is right modulo 2^64.
  EXPECT_TRUE(fails_with(decode_lengths({kHuge, 1}, 0), TCPX_PROTOCOL_ERROR, "exceed"));
  EXPECT_TRUE(fails_with(decode_lengths({kHuge, 11}, 10), TCPX_PROTOCOL_ERROR, "exceed"));
  EXPECT_TRUE(fails_with(decode_lengths({5, kHuge, 6}, 10), TCPX_PROTOCOL_ERROR, "exceed"));
  const uint64_t half = uint64_t{1} << 63;
  EXPECT_TRUE(fails_with(decode_lengths({half, half}, 0), TCPX_PROTOCOL_ERROR, "exceed"));
  EXPECT_TRUE(fails_with(decode_lengths({4096, half, half}, 4096), TCPX_PROTOCOL_ERROR, "exceed"));
}

TEST(WireFramePieces, OffsetsOutsideAnyRegionAreForTheOwnerToRefuse) {
  // The lane has to survive it: the owner answers TCPX_OUT_OF_RANGE.
  const std::array<Piece, 2> pieces = {Piece{1, kHuge, 16}, Piece{2, kHuge - 15, 16}};
  Header header = minimal(FrameType::kWrite);
  header.piece_count = 2;
  header.payload_bytes = 32;
  std::array<Piece, 2> out;
  ASSERT_TRUE(decode_pieces(header, table_of(pieces), out).ok());
  EXPECT_EQ(out, pieces);
}

TEST(WireFramePieces, SinglePieceComesFromTheHeader) {
  Header header = minimal(FrameType::kRead);
  header.payload_bytes = 9;
  header.piece = {3, 5, 9};
  EXPECT_EQ(header.table_bytes(), 0u);
  std::array<Piece, 1> out;
  ASSERT_TRUE(decode_pieces(header, {}, out).ok());
  EXPECT_EQ(out[0], header.piece);
  header.piece.length = 8;
  EXPECT_TRUE(fails_with(decode_pieces(header, {}, out), TCPX_PROTOCOL_ERROR, "payload_bytes"));
}

TEST(WireFramePieces, WrongBufferSizesAreErrorsNotOverruns) {
  const std::array<Piece, 2> pieces = {Piece{1, 0, 1}, Piece{1, 1, 1}};
  Header header = minimal(FrameType::kWrite);
  header.piece_count = 2;
  header.payload_bytes = 2;
  std::vector<uint8_t> table = table_of(pieces);
  std::array<Piece, 2> out;
  for (size_t size = 0; size < table.size(); ++size) {
    EXPECT_FALSE(decode_pieces(header, std::span(table).first(size), out).ok()) << size;
  }
  table.push_back(0);
  EXPECT_FALSE(decode_pieces(header, table, out).ok());
  table.pop_back();
  EXPECT_FALSE(decode_pieces(header, table, std::span(out).first(1)).ok());
  header.piece_count = UINT32_MAX;
  EXPECT_FALSE(decode_pieces(header, table, out).ok());
  EXPECT_TRUE(decode_pieces(minimal(FrameType::kBye), {}, {}).ok());
}

// ---- trailer ------------------------------------------------------------------------------------

TEST(WireFrameTrailer, EveryBitIsEitherAValueOrRefused) {
  const Trailer trailer{TCPX_REGION_REVOKED, 77};
  TrailerBytes bytes;
  encode_trailer(trailer, bytes);
  Trailer back;
  ASSERT_TRUE(decode_trailer(bytes, &back).ok());
  EXPECT_EQ(back, trailer);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    TrailerBytes flipped = bytes;
    flipped[bit / 8] = static_cast<uint8_t>(flipped[bit / 8] ^ (1 << (bit % 8)));
    Trailer out;
    if (decode_trailer(flipped, &out).ok()) {
      EXPECT_TRUE(out.status != trailer.status || out.sequence != trailer.sequence) << bit;
      TrailerBytes again;
      encode_trailer(out, again);
      EXPECT_EQ(again, flipped);
    }
  }
  encode_trailer({TCPX_IN_PROGRESS, 0}, bytes);
  EXPECT_TRUE(fails_with(decode_trailer(bytes, &back), TCPX_PROTOCOL_ERROR, "status"));
  bytes.fill(0xff);
  EXPECT_TRUE(fails_with(decode_trailer(bytes, &back), TCPX_PROTOCOL_ERROR, "magic"));
}

// ---- properties ---------------------------------------------------------------------------------

// Mostly small values and edges: uniform 64-bit numbers never hit a bound.
uint64_t pick(std::mt19937_64& random) {
  const uint64_t edges[] = {0,     1,        2, 63, 64, 1000, 1001, 1u << 24, (1u << 24) + 1,
                            kHuge, kHuge - 1};
  switch (random() % 3) {
    case 0: return edges[random() % std::size(edges)];
    case 1: return random() % 2000;
    default: return random();
  }
}

TEST(WireFrameProperty, WhatDecodesEncodesToTheSameBytes) {
  std::mt19937_64 random(test::test_seed());
  size_t accepted = 0;
  const size_t rounds = test::smaller_if_sanitized(200'000, 20'000);
  for (size_t round = 0; round < rounds; ++round) {
    Header header = minimal(static_cast<FrameType>(1 + random() % 12));
    if (random() % 4 == 0) header.status = static_cast<uint16_t>(pick(random));
    if (random() % 2 == 0) header.transfer = pick(random);
    if (random() % 2 == 0) header.chunk = static_cast<uint32_t>(pick(random));
    if (random() % 4 == 0) header.piece_count = static_cast<uint32_t>(pick(random));
    if (random() % 3 == 0) header.payload_bytes = pick(random);
    if (random() % 4 == 0) header.aux = pick(random);
    if (random() % 4 == 0) header.piece = {random(), pick(random), 0};
    HeaderBytes bytes = encoded(header);
    if (random() % 2 == 0)
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1u << random() % 8);
    Header out;
    if (!decode_it(bytes, &out).ok()) continue;
    ++accepted;
    ASSERT_EQ(to_hex(encoded(out)), to_hex(bytes));
    ASSERT_LE(out.payload_bytes, out.is_notice() ? kMaxNotifyBytes : kMaxChunkBytes);
    ASSERT_LE(out.table_bytes(), kMaxPieces * kPieceBytes);
  }
  EXPECT_GT(accepted, rounds / 200) << "the generator makes hardly any valid headers";
}

__extension__ typedef unsigned __int128 Wide;

TEST(WireFrameProperty, PieceTablesAddUpExactlyOrAreRefused) {
  std::mt19937_64 random(test::test_seed());
  for (int round = 0; round < test::smaller_if_sanitized(20'000, 2'000); ++round) {
    std::vector<uint64_t> lengths(2 + random() % 6);
    Wide sum = 0;
    for (uint64_t& length : lengths) {
      length = random() % 3 == 0 ? pick(random) : random() % 4096;
      sum += length;
    }
    const auto payload = static_cast<uint64_t>(sum);  // wraps now and then, on purpose
    ASSERT_EQ(decode_lengths(lengths, payload).ok(), sum == payload);
    ASSERT_FALSE(decode_lengths(lengths, payload + 1).ok());
    ASSERT_FALSE(decode_lengths(lengths, payload - 1).ok());
  }
}

}  // namespace
}  // namespace tcpx::wire
