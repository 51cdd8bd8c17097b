// Where a stream stands in its frames, both ways, whatever part of them the kernel takes or brings.
#include <gtest/gtest.h>

#include <random>

#include "path/tcp/incoming.h"
#include "path/tcp/send_queue.h"

namespace tcpx {
namespace {

using Bytes = std::vector<uint8_t>;

struct Out : TxFrame {
  std::vector<Bytes> parts;

  Out(wire::FrameType type, std::vector<size_t> sizes, size_t table_bytes, uint8_t fill) {
    header.type = type;
    table.assign(table_bytes, static_cast<uint8_t>(fill ^ 0xff));
    for (size_t size : sizes) {
      parts.emplace_back(size);
      for (uint8_t& byte : parts.back()) byte = fill++;
      header.payload_bytes += size;
    }
    for (Bytes& part : parts) payload.push_back({part.data(), part.size()});
  }
  // As it is to be on the wire.
  Bytes expected(uint32_t sequence) const {
    wire::Header named = header;
    named.sequence = sequence;
    Bytes out(wire::kHeaderBytes);
    wire::encode_header(named, std::span<uint8_t, wire::kHeaderBytes>(out));
    out.insert(out.end(), table.begin(), table.end());
    if (!has_tail()) return out;
    for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
    Bytes end(wire::kTrailerBytes);
    wire::encode_trailer({TCPX_OK, sequence}, std::span<uint8_t, wire::kTrailerBytes>(end));
    out.insert(out.end(), end.begin(), end.end());
    return out;
  }
};

// A kernel that takes `most` bytes of what it is offered.
Bytes take(SendQueue& queue, size_t most, std::vector<TxFrame*>* out) {
  iovec iov[16];
  size_t offered = 0;
  const size_t count = queue.gather(iov, 16, 1 << 20, &offered);
  Bytes taken;
  for (size_t i = 0; i < count && taken.size() < most; ++i) {
    const auto* base = static_cast<const uint8_t*>(iov[i].iov_base);
    taken.insert(taken.end(), base, base + std::min(iov[i].iov_len, most - taken.size()));
  }
  EXPECT_LE(taken.size(), offered);
  for (size_t left = taken.size(); TxFrame* frame = queue.advance(&left);) out->push_back(frame);
  return taken;
}

TEST(SendQueue, SendsEveryByteOnceWhateverIsTakenOfIt) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    Out write(wire::FrameType::kWrite, {5, 300, 1}, 32, 1), ack(wire::FrameType::kAck, {}, 0, 0),
        data(wire::FrameType::kData, {4000}, 0, 9), beside(wire::FrameType::kWrite, {700}, 16, 7);
    beside.beside = true;
    SendQueue queue;
    Bytes expected, got;
    std::vector<TxFrame*> frames = {&write, &ack, &data, &beside}, out;
    uint32_t sequence = 0;
    for (const Out* frame : {&write, &ack, &data, &beside}) {
      Bytes more = frame->expected(sequence++);
      expected.insert(expected.end(), more.begin(), more.end());
    }
    for (TxFrame* frame : frames) queue.push(frame);
    EXPECT_EQ(queue.payload_frames(), 2u);
    while (!queue.empty()) {
      Bytes taken = take(queue, 1 + random() % (round % 2 == 0 ? 40 : 3000), &out);
      got.insert(got.end(), taken.begin(), taken.end());
      ASSERT_LE(got.size(), expected.size());
    }
    EXPECT_EQ(got, expected);
    EXPECT_EQ(out, frames);
    EXPECT_EQ(queue.payload_frames(), 0u);
  }
}

TEST(SendQueue, TakesBackWhatHasNotStarted) {
  Out a(wire::FrameType::kWrite, {10}, 0, 1), b(wire::FrameType::kWrite, {10}, 0, 2),
      c(wire::FrameType::kWrite, {10}, 0, 3);
  SendQueue queue;
  std::vector<TxFrame*> out;
  for (TxFrame* frame : {&a, &b, &c}) queue.push(frame);
  EXPECT_TRUE(queue.take_back(&c)) << "the last one";
  EXPECT_FALSE(queue.take_back(&c));
  queue.push(&c);
  EXPECT_TRUE(queue.take_back(&b));
  EXPECT_EQ(queue.payload_frames(), 2u);
  (void)take(queue, 1, &out);
  EXPECT_FALSE(queue.take_back(&a)) << "a byte of it is out";
  while (!queue.empty()) (void)take(queue, 1000, &out);
  EXPECT_EQ(out, (std::vector<TxFrame*>{&a, &c}));
}

TEST(SendQueue, AbandonedPayloadIsZerosAndTheTrailerSaysWhy) {
  Out write(wire::FrameType::kWrite, {100, 3'000'000}, 0, 1);
  SendQueue queue;
  std::vector<TxFrame*> out;
  queue.push(&write);
  Bytes got = take(queue, wire::kHeaderBytes + 50, &out);
  SendQueue::abandon(&write, TCPX_CANCELLED);
  while (!queue.empty()) {
    Bytes more = take(queue, 1 << 20, &out);
    got.insert(got.end(), more.begin(), more.end());
  }
  ASSERT_EQ(got.size(), wire::kHeaderBytes + 3'000'100 + wire::kTrailerBytes);
  const auto payload = got.begin() + wire::kHeaderBytes;
  EXPECT_TRUE(std::equal(payload, payload + 50, write.parts[0].begin()));
  EXPECT_EQ(std::count(payload + 50, payload + 3'000'100, 0), 3'000'050);
  wire::Trailer trailer;
  ASSERT_TRUE(
      wire::decode_trailer(std::span<const uint8_t>(got).last<wire::kTrailerBytes>(), &trailer)
          .ok());
  EXPECT_EQ(trailer.status, TCPX_CANCELLED);
}

// ---- in --------------------------------------------------------------------------------------

TEST(Incoming, PayloadLandsWhereItBelongsAndWhatFollowsIsKept) {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    Bytes source(1000), first(300), second(700);
    for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
    source.resize(source.size() + wire::kTrailerBytes + wire::kHeaderBytes, 0xAB);
    RxChunk chunk;
    chunk.landing = {{first.data(), first.size()}, {second.data(), second.size()}};
    Incoming in;
    in.header.payload_bytes = 1000;
    in.payload_follows();
    in.lands_in(&chunk);
    size_t at = 0;
    while (!in.trailer_is_here() || in.ahead_got < sizeof in.ahead) {
      iovec iov[Incoming::kMaxIov + 1];
      size_t asked = 0;
      const size_t count = in.gather(iov, &asked);
      ASSERT_EQ(asked, source.size() - at) << "all of it, in one call";
      const size_t got = 1 + random() % std::min<size_t>(asked, 400);
      size_t left = got;
      for (size_t i = 0; i < count && left > 0; ++i) {
        const size_t step = std::min(left, iov[i].iov_len);
        memcpy(iov[i].iov_base, source.data() + at, step);
        at += step;
        left -= step;
      }
      in.ahead_got += got - (in.payload_left > 0 ? in.take_payload(got) : 0);
    }
    first.insert(first.end(), second.begin(), second.end());
    EXPECT_TRUE(std::equal(first.begin(), first.end(), source.begin()));
    EXPECT_EQ(std::count(in.ahead, in.ahead + sizeof in.ahead, 0xAB),
              static_cast<ptrdiff_t>(sizeof in.ahead));
  }
}

TEST(Incoming, WhatIsDiscardedHasNoLanding) {
  RxChunk chunk;
  Bytes memory(10, 7);
  chunk.state.step(RxChunk::State::kHead);
  chunk.landing = {{memory.data(), memory.size()}};
  chunk.state.step(RxChunk::State::kLanding);
  Incoming in;
  in.header.payload_bytes = 100;
  in.payload_follows();
  in.lands_in(&chunk);
  EXPECT_FALSE(in.discards());
  chunk.drop(TCPX_CANCELLED);
  EXPECT_TRUE(in.discards());
  EXPECT_EQ(in.take_payload(40), 40u);
  EXPECT_EQ(in.take_payload(80), 60u) << "the rest is the trailer's";
  EXPECT_FALSE(in.discards());
  EXPECT_EQ(chunk.landing[0].iov_len, 10u);
}

// Where payload goes is not known before the table is there.
TEST(Incoming, BehindATableNothingIsAskedForThatHasPayload) {
  Incoming in;
  in.header.type = wire::FrameType::kWrite;
  in.header.piece_count = 3;
  in.header.payload_bytes = 100;
  in.table_follows();
  iovec iov[Incoming::kMaxIov + 1];
  size_t asked = 0;
  EXPECT_EQ(in.gather(iov, &asked), 1u);
  EXPECT_EQ(asked, 3 * wire::kPieceBytes);
  in.header.type = wire::FrameType::kRead;
  EXPECT_EQ(in.gather(iov, &asked), 2u);
}

}  // namespace
}  // namespace tcpx
