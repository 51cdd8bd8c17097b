#include "wire/handshake.h"

#include "../support/env.h"
#include "wire/frame.h"
#include "wire_test_util.h"

namespace tcpx::wire {
namespace {

using test::counting_from;
using test::fails_with;

// Encodes into a buffer that is not zero before, so that a forgotten byte shows.
template <class Message, size_t N>
std::array<uint8_t, N> encoded_as(const Message& message) {
  std::array<uint8_t, N> bytes;
  bytes.fill(0xee);
  encode(message, bytes);
  return bytes;
}
auto encoded(const Hello& m) {
  return encoded_as<Hello, kHelloBytes>(m);
}
auto encoded(const Challenge& m) {
  return encoded_as<Challenge, kChallengeBytes>(m);
}
auto encoded(const Proof& m) {
  return encoded_as<Proof, kProofMessageBytes>(m);
}
auto encoded(const Welcome& m) {
  return encoded_as<Welcome, kWelcomeBytes>(m);
}

template <class Message>
Status recode(const Message& message) {
  Message out;
  const auto bytes = encoded(message);
  return decode(bytes, &out);
}

template <class Message>
void expect_round_trip(const Message& message) {
  Message back;
  const auto bytes = encoded(message);
  const Status status = decode(bytes, &back);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(back, message);
}

Address v4_address() {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 7}, 20000, 120};
}
Address v6_address() {
  return {{0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}, 65535, 64};
}

Hello join_hello() {
  Hello hello;
  hello.kind = HelloKind::kJoinLane;
  hello.lane = 5;
  hello.session = 0x1817161514131211;
  hello.uid = counting_from<16>(0x20);
  hello.target_uid = counting_from<16>(0x30);
  hello.nonce = counting_from<32>(0x40);
  hello.lanes = 8;
  hello.chunk_bytes = 512 << 10;
  hello.window = 16;
  hello.epoch = 0xb7b6b5b4b3b2b1b0;
  hello.key_id = 0xc7c6c5c4c3c2c1c0;
  hello.paths = kTcpPath | kNetPath;
  hello.name = "client:1";
  hello.knock = counting_from<8>(0xd8);
  return hello;
}

Hello first_hello() {
  Hello hello = join_hello();
  hello.kind = HelloKind::kNewSession;
  hello.lane = 0;
  hello.session = 0;
  return hello;
}

Challenge some_challenge() {
  Challenge challenge;
  challenge.uid = counting_from<16>(0x70);
  challenge.nonce = counting_from<32>(0x80);
  challenge.proof = counting_from<32>(0xa0);
  return challenge;
}

Welcome some_welcome() {
  Welcome welcome;
  welcome.session = 0x0102030405060708;
  welcome.lanes = 4;
  welcome.chunk_bytes = 512 << 10;
  welcome.window = 16;
  welcome.epoch = 0xd7d6d5d4d3d2d1d0;
  welcome.paths = kTcpPath | kNetPath;
  welcome.name = "server";
  welcome.addresses = {v4_address(), v6_address()};
  welcome.mac = counting_from<32>(0xe0);
  return welcome;
}

// ---- golden bytes -------------------------------------------------------------------------------

TEST(WireHandshakeGolden, Hello) {
  EXPECT_EQ(to_hex(encoded(join_hello())),
            "5443504804000201050000000800000011121314151617180000080000000000"
            "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f"
            "404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
            "636c69656e743a31000000000000000000000000000000000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "1000000004000300b0b1b2b3b4b5b6b7c0c1c2c3c4c5c6c7d8d9dadbdcdddedf");
}

TEST(WireHandshakeGolden, ChallengeAndProof) {
  EXPECT_EQ(to_hex(encoded(some_challenge())),
            "54435043040000000100000000000000707172737475767778797a7b7c7d7e7f"
            "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f"
            "a0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf");
  EXPECT_EQ(to_hex(encoded(Proof{counting_from<32>(0xc0)})),
            "5443505000000000c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7"
            "d8d9dadbdcdddedf");
}

TEST(WireHandshakeGolden, Welcome) {
  EXPECT_EQ(to_hex(encoded(some_welcome())),
            "5443505700000200040000001000000008070605040302010000080000000000"
            "7365727665720000000000000000000000000000000000000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "00000000000000000000ffffc0000207204e780020010db80000000000000000"
            "00000009ffff4000000000000000000000000000000000000000000000000000" +
                std::string((416 - 160) * 2, '0') + "0300000000000000d0d1d2d3d4d5d6d7" +
                std::string(16 * 2, '0') +
                "e0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
}

// ---- round trips and names ----------------------------------------------------------------------

TEST(WireHandshake, MessagesComeBack) {
  expect_round_trip(join_hello());
  expect_round_trip(first_hello());
  expect_round_trip(some_challenge());
  expect_round_trip(Proof{counting_from<32>(1)});
  expect_round_trip(some_welcome());

  Hello open = first_hello();
  open.authenticated = false;
  open.window = 0;
  open.name = "";
  expect_round_trip(open);
  Challenge refusal = some_challenge();
  refusal.status = TCPX_AUTH_FAILED;
  refusal.authenticated = false;
  expect_round_trip(refusal);
  Welcome full = some_welcome();
  full.addresses.assign(kMaxAddresses, v4_address());
  full.name.assign(kNameBytes - 1, 'x');
  expect_round_trip(full);
}

TEST(WireHandshake, ARefusalNeedsNoSession) {
  Welcome refusal;
  refusal.status = TCPX_LIMIT;
  refusal.lanes = 0;
  expect_round_trip(refusal);
}

TEST(WireHandshake, NamesAreCutNotTrusted) {
  Hello hello = first_hello();
  hello.name.assign(1000, 'n');
  Hello back;
  auto bytes = encoded(hello);
  ASSERT_TRUE(decode(bytes, &back).ok());
  EXPECT_EQ(back.name, std::string(kNameBytes - 1, 'n'));

  std::fill_n(bytes.begin() + 96, kNameBytes, 'z');  // no terminator at all
  ASSERT_TRUE(decode(bytes, &back).ok());
  EXPECT_EQ(back.name, std::string(kNameBytes - 1, 'z'));

  bytes[96 + 3] = 0;
  ASSERT_TRUE(decode(bytes, &back).ok());
  EXPECT_EQ(back.name, "zzz");
}

TEST(WireHandshake, TooManyAddressesAreLeftOut) {
  Welcome welcome = some_welcome();
  welcome.addresses.assign(kMaxAddresses + 5, v6_address());
  Welcome back;
  const auto bytes = encoded(welcome);
  ASSERT_TRUE(decode(bytes, &back).ok());
  EXPECT_EQ(back.addresses.size(), kMaxAddresses);
}

// ---- versions -----------------------------------------------------------------------------------

TEST(WireHandshake, OtherVersionsAreToldApartFromGarbage) {
  for (uint32_t version : {0u, kWireVersion + 1u, 0xffffu}) {
    Hello hello = first_hello();
    hello.versions = {static_cast<uint16_t>(version), static_cast<uint16_t>(version)};
    auto bytes = encoded(hello);
    Hello out;
    const std::string text = "wire version " + std::to_string(version);
    EXPECT_TRUE(fails_with(decode(bytes, &out), TCPX_VERSION_MISMATCH, text));
    // A later version may mean anything by the rest, and still gets this answer.
    std::fill(bytes.begin() + 6, bytes.end(), uint8_t{0xff});
    EXPECT_TRUE(fails_with(decode(bytes, &out), TCPX_VERSION_MISMATCH, text));

    Challenge challenge = some_challenge();
    challenge.version = static_cast<uint16_t>(version);
    EXPECT_TRUE(fails_with(recode(challenge), TCPX_VERSION_MISMATCH, text));
  }
  static_assert(kOldestWireVersion <= kWireVersion);
}

// Version 3 said one number, and kept the place of the other one zero.
TEST(WireHandshake, AHelloFromBeforeRangesIsOfThatOneVersion) {
  Hello hello = first_hello();
  hello.versions = {0, 3};
  EXPECT_TRUE(fails_with(recode(hello), TCPX_VERSION_MISMATCH, "wire version 3,"));
}

TEST(WireHandshake, TheNewestVersionThatBothSpeakIsTaken) {
  EXPECT_EQ(common_version({4, 4}, {4, 4}), 4);
  EXPECT_EQ(common_version({4, 7}, {5, 6}), 6);
  EXPECT_EQ(common_version({5, 6}, {4, 7}), 6);
  EXPECT_EQ(common_version({4, 5}, {5, 9}), 5);
  EXPECT_EQ(common_version({4, 4}, {5, 9}), 0) << "too old";
  EXPECT_EQ(common_version({6, 9}, {4, 5}), 0) << "too new";
  EXPECT_EQ(common_version({9, 4}, {4, 9}), 0) << "no range";
}

TEST(WireHandshake, AHelloOfALaterVersionIsReadAsOursIfItSpeaksOursToo) {
  Hello hello = first_hello();
  hello.versions.newest = kWireVersion + 3;
  expect_round_trip(hello);
  auto bytes = encoded(hello);
  bytes[7] = 0xff;  // flags of that version
  Hello out;
  ASSERT_TRUE(decode(bytes, &out).ok());
  EXPECT_EQ(out, hello);
}

TEST(WireHandshake, PathsOfLaterVersionsAreCarriedNotRefused) {
  Hello hello = first_hello();
  Welcome welcome = some_welcome();
  for (PathMask paths : {PathMask{0}, kIpcPath, PathMask{0x8001}, PathMask{0xffff}}) {
    hello.paths = welcome.paths = paths;
    expect_round_trip(hello);
    expect_round_trip(welcome);
  }
}

// ---- bounds -------------------------------------------------------------------------------------

template <class Message, class Value>
Status with(Message message, Value Message::*field, std::type_identity_t<Value> value) {
  message.*field = value;
  return recode(message);
}

TEST(WireHandshake, HelloBounds) {
  const Hello first = first_hello();
  const Hello join = join_hello();
  constexpr tcpx_code kBad = TCPX_PROTOCOL_ERROR;
  for (const Hello& hello : {first, join}) {
    EXPECT_TRUE(with(hello, &Hello::lanes, kMaxLanes).ok());
    EXPECT_TRUE(fails_with(with(hello, &Hello::lanes, 0), kBad, "lanes"));
    EXPECT_TRUE(fails_with(with(hello, &Hello::lanes, kMaxLanes + 1), kBad, "lanes"));
    EXPECT_TRUE(with(hello, &Hello::chunk_bytes, kMaxChunkBytes).ok());
    EXPECT_TRUE(with(hello, &Hello::chunk_bytes, kMinChunkBytes).ok());
    EXPECT_TRUE(fails_with(with(hello, &Hello::chunk_bytes, kMaxChunkBytes + 1), kBad, "chunk"));
    EXPECT_TRUE(fails_with(with(hello, &Hello::chunk_bytes, UINT64_MAX), kBad, "chunk_bytes"));
    EXPECT_TRUE(with(hello, &Hello::window, kMaxWindow).ok());
    EXPECT_TRUE(fails_with(with(hello, &Hello::window, kMaxWindow + 1), kBad, "window"));
    EXPECT_TRUE(fails_with(with(hello, &Hello::kind, HelloKind{0}), kBad, "kind"));
    EXPECT_TRUE(fails_with(with(hello, &Hello::kind, HelloKind{3}), kBad, "kind"));
  }
  EXPECT_TRUE(fails_with(with(first, &Hello::chunk_bytes, kMinChunkBytes - 1), kBad, "chunk"));
  EXPECT_TRUE(with(join, &Hello::chunk_bytes, 0).ok());
  EXPECT_TRUE(fails_with(with(first, &Hello::session, 1), kBad, "session"));
  EXPECT_TRUE(fails_with(with(first, &Hello::lane, 1), kBad, "lane 0"));
  EXPECT_TRUE(fails_with(with(join, &Hello::session, 0), kBad, "session"));
  EXPECT_TRUE(with(join, &Hello::lane, kMaxLanes - 1).ok());
  EXPECT_TRUE(fails_with(with(join, &Hello::lane, kMaxLanes), kBad, "lane"));
}

TEST(WireHandshake, WelcomeBounds) {
  const Welcome good = some_welcome();
  constexpr tcpx_code kBad = TCPX_PROTOCOL_ERROR;
  EXPECT_TRUE(fails_with(with(good, &Welcome::session, 0), kBad, "session"));
  EXPECT_TRUE(fails_with(with(good, &Welcome::lanes, 0), kBad, "lanes"));
  EXPECT_TRUE(fails_with(with(good, &Welcome::window, 0), kBad, "window"));
  EXPECT_TRUE(fails_with(with(good, &Welcome::chunk_bytes, 0), kBad, "chunk_bytes"));
  EXPECT_TRUE(fails_with(with(good, &Welcome::status, TCPX_IN_PROGRESS), kBad, "status"));
  EXPECT_TRUE(fails_with(with(good, &Welcome::status, TCPX_COPY_FAILED + 1), kBad, "status"));
  for (uint16_t status : {uint16_t{TCPX_OK}, uint16_t{TCPX_LIMIT}}) {
    Welcome welcome = good;
    welcome.status = status;
    EXPECT_TRUE(fails_with(with(welcome, &Welcome::lanes, kMaxLanes + 1), kBad, "lanes"));
    EXPECT_TRUE(fails_with(with(welcome, &Welcome::window, kMaxWindow + 1), kBad, "window"));
    EXPECT_TRUE(
        fails_with(with(welcome, &Welcome::chunk_bytes, kMaxChunkBytes + 1), kBad, "chunk"));
  }
  EXPECT_TRUE(
      fails_with(with(some_challenge(), &Challenge::status, TCPX_IN_PROGRESS), kBad, "status"));
}

TEST(WireHandshake, WelcomeAddresses) {
  Welcome out;
  auto bytes = encoded(some_welcome());
  bytes[6] = kMaxAddresses + 1;
  EXPECT_TRUE(fails_with(decode(bytes, &out), TCPX_PROTOCOL_ERROR, "addresses"));
  bytes[6] = 0;
  bytes[7] = 0xff;  // a count that would be a large allocation
  EXPECT_TRUE(fails_with(decode(bytes, &out), TCPX_PROTOCOL_ERROR, "addresses"));
  bytes[7] = 0;
  bytes[6] = 1;  // the second address is then in unused space
  EXPECT_TRUE(fails_with(decode(bytes, &out), TCPX_PROTOCOL_ERROR, "reserved"));
  bytes[6] = 3;  // the third one is all zero
  EXPECT_TRUE(fails_with(decode(bytes, &out), TCPX_PROTOCOL_ERROR, "port"));

  Welcome welcome = some_welcome();
  welcome.addresses[1].prefix_length = 128;
  EXPECT_TRUE(recode(welcome).ok());
  welcome.addresses[1].prefix_length = 129;
  EXPECT_TRUE(fails_with(recode(welcome), TCPX_PROTOCOL_ERROR, "prefix_length"));
}

// ---- reserved bytes, magic, garbage -------------------------------------------------------------

template <class Message>
void expect_refused(const Message& message, size_t from, size_t to, const char* text) {
  const auto good = encoded(message);
  for (size_t offset = from; offset < to; ++offset) {
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = good;
      bytes[offset] = static_cast<uint8_t>(bytes[offset] ^ (1 << bit));
      Message out;
      ASSERT_TRUE(fails_with(decode(bytes, &out), TCPX_PROTOCOL_ERROR, text)) << offset;
    }
  }
}

TEST(WireHandshake, MagicAndReservedBytes) {
  expect_refused(first_hello(), 0, 4, "magic");
  expect_refused(some_challenge(), 0, 4, "magic");
  expect_refused(some_challenge(), 9, 16, "reserved");
  expect_refused(Proof{}, 0, 4, "magic");
  expect_refused(Proof{}, 4, 8, "reserved");
  expect_refused(some_welcome(), 0, 4, "magic");
  expect_refused(some_welcome(), 96 + 19, 96 + 20, "reserved");
  expect_refused(some_welcome(), 96 + 40, 416, "reserved");
  expect_refused(some_welcome(), 418, 424, "reserved");
  expect_refused(some_welcome(), 432, kWelcomeSignedBytes, "reserved");
}

TEST(WireHandshake, UnknownFlags) {
  for (int bit = 1; bit < 8; ++bit) {
    auto hello = encoded(first_hello());
    hello[7] = static_cast<uint8_t>(1 << bit);
    Hello hello_out;
    EXPECT_TRUE(fails_with(decode(hello, &hello_out), TCPX_PROTOCOL_ERROR, "flags"));
    auto challenge = encoded(some_challenge());
    challenge[8] = static_cast<uint8_t>(1 << bit);
    Challenge challenge_out;
    EXPECT_TRUE(fails_with(decode(challenge, &challenge_out), TCPX_PROTOCOL_ERROR, "flags"));
  }
}

template <class Message, size_t N>
void expect_garbage_refused() {
  Message out;
  for (int value : {0x00, 0x47, 0xff}) {
    std::array<uint8_t, N> bytes;
    bytes.fill(static_cast<uint8_t>(value));
    const Status status = decode(bytes, &out);
    EXPECT_EQ(status.code(), TCPX_PROTOCOL_ERROR);
    EXPECT_EQ(status.blast(), TCPX_BLAST_LANE);
  }
  EXPECT_EQ(out, Message{});
}

TEST(WireHandshake, GarbageIsRefusedAndOutputStays) {
  expect_garbage_refused<Hello, kHelloBytes>();
  expect_garbage_refused<Challenge, kChallengeBytes>();
  expect_garbage_refused<Proof, kProofMessageBytes>();
  expect_garbage_refused<Welcome, kWelcomeBytes>();
}

// ---- property -----------------------------------------------------------------------------------

template <class Message>
void damage_and_decode(const Message& message, std::mt19937_64& random, size_t* accepted) {
  auto bytes = encoded(message);
  for (size_t i = random() % 4; i > 0; --i) {
    bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
  }
  Message out;
  if (!decode(bytes, &out).ok()) return;
  ++*accepted;
  Message again;
  const auto bytes_again = encoded(out);
  ASSERT_TRUE(decode(bytes_again, &again).ok());
  ASSERT_EQ(again, out);
}

TEST(WireHandshakeProperty, WhatDecodesSurvivesEncoding) {
  std::mt19937_64 random(test::test_seed());
  size_t accepted = 0;
  const size_t rounds = test::smaller_if_sanitized(20'000, 4'000);
  for (size_t round = 0; round < rounds; ++round) {
    damage_and_decode(random() % 2 == 0 ? first_hello() : join_hello(), random, &accepted);
    damage_and_decode(some_challenge(), random, &accepted);
    damage_and_decode(some_welcome(), random, &accepted);
    damage_and_decode(Proof{counting_from<32>(3)}, random, &accepted);
  }
  EXPECT_GT(accepted, rounds / 2);
}

}  // namespace
}  // namespace tcpx::wire
