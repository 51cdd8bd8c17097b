#include "engine/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "../support/env.h"

namespace tcpx {
namespace {

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() : memory_(1 << 20) {
    EXPECT_TRUE(table_.add({memory_.data(), memory_.size(), 0}, &local_).ok());
    remote_.id = uint64_t{9} << 32 | 7;
    remote_.length = 1 << 20;
    remote_.access = 3;
  }
  void add(uint64_t local_offset, uint64_t remote_offset, uint64_t length) {
    locals_.push_back({local_, local_offset, length});
    remotes_.push_back({&remote_, remote_offset, length});
  }
  Status make(uint64_t chunk_bytes, Plan* plan, tcpx_op op = TCPX_WRITE) {
    return make_plan({op, locals_, remotes_, nullptr, chunk_bytes}, table_, plan);
  }

  RegionTable table_;
  std::vector<uint8_t> memory_;
  uint64_t local_ = 0;
  tcpx_remote_region remote_{};
  std::vector<tcpx_local_piece> locals_;
  std::vector<tcpx_remote_piece> remotes_;
};

// Byte by byte: which remote offset each local offset goes to, as the chunks say.
std::multimap<uint64_t, uint64_t> moves(const Plan& plan, const uint8_t* base) {
  std::multimap<uint64_t, uint64_t> out;
  for (const Chunk& chunk : plan.chunks) {
    std::vector<iovec> local;
    std::vector<wire::Piece> remote;
    PartRegions regions;
    plan.local_memory(chunk, &local, &regions);
    plan.remote_pieces(chunk, &remote);
    EXPECT_EQ(remote.size(), chunk.pieces);
    std::vector<uint64_t> from, to;
    for (const iovec& part : local)
      for (size_t i = 0; i < part.iov_len; ++i)
        from.push_back(static_cast<uint64_t>(static_cast<uint8_t*>(part.iov_base) - base) + i);
    for (const wire::Piece& piece : remote)
      for (uint64_t i = 0; i < piece.length; ++i) to.push_back(piece.offset + i);
    EXPECT_EQ(from.size(), chunk.bytes);
    EXPECT_EQ(to.size(), chunk.bytes);
    for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) out.emplace(from[i], to[i]);
  }
  return out;
}

TEST_F(PlanTest, NeighboursOnBothSidesAreJoined) {
  add(0, 100, 50);
  add(50, 150, 50);   // joins
  add(100, 300, 10);  // remote gap
  add(200, 310, 10);  // local gap
  Plan plan;
  ASSERT_TRUE(make(1 << 20, &plan).ok());
  ASSERT_EQ(plan.runs.size(), 3u);
  EXPECT_EQ(plan.runs[0].remote.length, 100u);
  EXPECT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.pieces, 4u);
  EXPECT_EQ(plan.bytes, 120u);
}

// Each piece in one of two places on either side: whatever their order, no chunk mixes, and every
// byte moves.
TEST_F(PlanTest, ChunksAreCutWhereThePlaceChanges) {
  uint64_t device = 0;
  const uint64_t half = memory_.size() / 2;
  Place cuda{Place::Kind::kCuda, 3};
  ASSERT_TRUE(table_.add({memory_.data() + half, half, 0, cuda}, &device).ok());
  tcpx_remote_region far = remote_;
  far.id += 1;
  far.memory = TCPX_MEMORY_CUDA;
  far.device = 1;
  for (uint32_t i = 0; i < 64; ++i) {
    bool on_device = (i & 1) != 0, is_far = (i & 2) != 0;
    locals_.push_back({on_device ? device : local_, i * 100, 100});
    remotes_.push_back({is_far ? &far : &remote_, i * 100, 100});
  }
  Plan plan;
  ASSERT_TRUE(make(1 << 20, &plan).ok());
  ASSERT_EQ(plan.chunks.size(), 64u);
  EXPECT_EQ(moves(plan, memory_.data()).size(), 6400u);
  for (uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(plan.chunks[i].local, (i & 1) != 0 ? cuda : Place{});
    EXPECT_EQ(plan.chunks[i].remote.text(), (i & 2) != 0 ? "cuda:1" : "host");
  }
}

// Side by side in the address space, and yet two memories.
TEST_F(PlanTest, NeighboursInDifferentPlacesAreNotJoined) {
  uint64_t low = 0, high = 0;
  ASSERT_TRUE(table_.add({memory_.data(), 100, 0}, &low).ok());
  ASSERT_TRUE(table_.add({memory_.data() + 100, 100, 0, {Place::Kind::kCuda, 0}}, &high).ok());
  locals_ = {{low, 0, 100}, {high, 0, 100}};
  remotes_ = {{&remote_, 0, 100}, {&remote_, 100, 100}};
  Plan plan;
  ASSERT_TRUE(make(1 << 20, &plan).ok());
  EXPECT_EQ(plan.runs.size(), 2u);
  EXPECT_EQ(plan.chunks.size(), 2u);
}

// The same for two regions of one place; and every part knows its own, whatever chunk it is in.
TEST_F(PlanTest, PartsKnowTheirRegions) {
  uint64_t regions[2] = {};
  for (size_t i : {0u, 1u})
    ASSERT_TRUE(table_.add({memory_.data() + i * 100'000, 100'000, 0}, &regions[i]).ok());
  // Runs of one and of several pieces, neighbours across the border, pieces of nothing.
  for (uint64_t i = 0; i < 300; ++i) {
    uint64_t which = i / 7 % 2, offset = i * 30;
    if (which == 0 && i % 7 == 6) offset = 99'990;
    if (which == 1 && i % 7 == 0) offset = 0;
    uint64_t length = i % 11 == 0 ? 0 : 10;
    locals_.push_back({regions[which], offset, length});
    remotes_.push_back({&remote_, i * 10, length});
  }
  Plan plan;
  ASSERT_TRUE(make(64, &plan).ok());
  size_t seen = 0;
  for (const Chunk& chunk : plan.chunks) {
    std::vector<iovec> parts;
    PartRegions in;
    plan.local_memory(chunk, &parts, &in);
    for (size_t i = 0; i < parts.size(); ++i, ++seen) {
      auto* from = static_cast<uint8_t*>(parts[i].iov_base);
      size_t which = from < memory_.data() + 100'000 ? 0 : 1;
      ASSERT_NE(in.of(i), nullptr);
      ASSERT_EQ(in.of(i)->id, regions[which]) << seen;
      ASSERT_EQ(in.of(i)->base, memory_.data() + which * 100'000);
      ASSERT_TRUE(in.of(i)->contains(from + parts[i].iov_len - 1));
    }
  }
  EXPECT_GT(seen, 200u);
}

// What the owner takes at a time counts for its memory, what we can move for ours.
TEST_F(PlanTest, ChunksAreAsShortAsBothSidesNeed) {
  struct FewSlots : Movers {
    Status admit(const void*, uint64_t, const Place&) override { return {}; }
    std::unique_ptr<Mover> make(MoverFor, MoveWatcher&) override { return nullptr; }
    uint64_t most_at_a_time(const Place& place) const override {
      return place.is_host() ? UINT64_MAX : 8192;
    }
  } movers;
  uint64_t device = 0;
  ASSERT_TRUE(table_.add({memory_.data(), 40'000, 0, {Place::Kind::kCuda, 3}}, &device).ok());
  tcpx_remote_region far = remote_, forged = remote_;
  far.memory = forged.memory = TCPX_MEMORY_CUDA;
  far.chunk_bytes = 4096;
  forged.chunk_bytes = 1;
  const auto longest = [&](uint64_t local, const tcpx_remote_region& remote) {
    locals_ = {{local, 0, 40'000}};
    remotes_ = {{&remote, 0, 40'000}};
    Plan plan;
    EXPECT_TRUE(make_plan({TCPX_WRITE, locals_, remotes_, nullptr, 16384, &movers}, table_, &plan));
    EXPECT_EQ(moves(plan, memory_.data()).size(), 40'000u);
    EXPECT_EQ(plan.touches_gpus(), local != local_ || remote.memory != TCPX_MEMORY_HOST);
    uint64_t most = 0;
    for (const Chunk& chunk : plan.chunks) most = std::max(most, chunk.bytes);
    return most;
  };
  EXPECT_EQ(longest(local_, remote_), 16384u);
  EXPECT_EQ(longest(device, remote_), 8192u);
  EXPECT_EQ(longest(local_, far), 4096u);
  EXPECT_EQ(longest(device, far), 4096u);
  EXPECT_EQ(longest(local_, forged), 4096u) << "nobody makes us plan byte by byte";
}

TEST_F(PlanTest, WhatHasAnEndInAGpuHasALimitOfItsOwn) {
  uint64_t device = 0;
  ASSERT_TRUE(table_.add({memory_.data(), 40'000, 0, {Place::Kind::kCuda, 3}}, &device).ok());
  tcpx_remote_region far = remote_;
  far.memory = TCPX_MEMORY_CUDA;
  const auto sizes = [&](const tcpx_remote_region& remote) {
    locals_ = {{local_, 0, 30'000}, {device, 30'000, 10'000}};
    remotes_ = {{&remote, 0, 30'000}, {&remote, 30'000, 10'000}};
    Plan plan;
    EXPECT_TRUE(
        make_plan({TCPX_WRITE, locals_, remotes_, nullptr, 16384, nullptr, 8192}, table_, &plan));
    EXPECT_EQ(moves(plan, memory_.data()).size(), 40'000u);
    std::vector<uint64_t> out;
    for (const Chunk& chunk : plan.chunks) out.push_back(chunk.bytes);
    return out;
  };
  EXPECT_THAT(sizes(remote_), ::testing::ElementsAre(16384, 13616, 8192, 1808));
  EXPECT_THAT(sizes(far), ::testing::ElementsAre(8192, 8192, 8192, 5424, 8192, 1808));
}

// A description says what its peer likes.
TEST_F(PlanTest, NobodyHasSoManyGpus) {
  add(0, 0, 100);
  remote_.memory = TCPX_MEMORY_CUDA;
  Plan plan;
  for (uint16_t device : {0, 62}) {
    remote_.device = device;
    EXPECT_TRUE(make(4096, &plan).ok());
    EXPECT_TRUE(plan.touches_gpus());
  }
  for (uint16_t device : {63, 64, 65535}) {
    remote_.device = device;
    EXPECT_EQ(make(4096, &plan).code(), TCPX_INVALID_ARGUMENT) << device;
  }
}

TEST_F(PlanTest, NothingToMoveHasAPlaceToo) {
  remote_.memory = TCPX_MEMORY_CUDA;
  remote_.device = 2;
  add(0, 0, 0);
  Plan plan;
  ASSERT_TRUE(make(1 << 20, &plan).ok());
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].remote.text(), "cuda:2");
}

TEST_F(PlanTest, ChunksCoverEveryByteOnceWhateverTheList) {
  std::random_device device;
  unsigned seed = device();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < test::smaller_if_sanitized(50, 10); ++round) {
    locals_.clear();
    remotes_.clear();
    std::multimap<uint64_t, uint64_t> expected;
    uint64_t at = 0;
    for (size_t i = 0, n = 1 + random() % 300; i < n; ++i) {
      uint64_t length = random() % 4 == 0 ? 0 : random() % 700;
      uint64_t remote_at = random() % 3 == 0 ? random() % 500'000 : at;
      add(at, remote_at, length);
      for (uint64_t b = 0; b < length; ++b) expected.emplace(at + b, remote_at + b);
      at += length + (random() % 2) * (random() % 9);
    }
    uint64_t chunk_bytes = 1 + random() % 5000;
    Plan plan;
    ASSERT_TRUE(make(chunk_bytes, &plan).ok());
    for (const Chunk& chunk : plan.chunks) {
      EXPECT_LE(chunk.bytes, chunk_bytes);
      EXPECT_LE(chunk.pieces, wire::kMaxPieces);
      EXPECT_GE(chunk.pieces, 1u);
    }
    ASSERT_EQ(moves(plan, memory_.data()), expected);
  }
}

TEST_F(PlanTest, ManySmallPiecesAreBoundedPerChunk) {
  for (uint64_t i = 0; i < 5001; ++i) add(i * 64, i * 96, 16);
  Plan plan;
  ASSERT_TRUE(make(1 << 20, &plan).ok());
  ASSERT_EQ(plan.chunks.size(), 6u);
  EXPECT_EQ(plan.chunks[0].pieces, wire::kMaxPieces);
  EXPECT_EQ(plan.chunks[5].pieces, 1u);
}

TEST_F(PlanTest, NothingToMoveIsStillOneChunk) {
  add(5, 7, 0);
  add(9, 9, 0);
  Plan plan;
  ASSERT_TRUE(make(4096, &plan).ok());
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].bytes, 0u);
  EXPECT_EQ(plan.chunks[0].pieces, 1u);
}

TEST_F(PlanTest, BadPiecesAreNamed) {
  Plan plan;
  auto code = [&](tcpx_op op = TCPX_WRITE) {
    Status status = make(4096, &plan, op);
    locals_.clear();
    remotes_.clear();
    return status.code();
  };
  add(0, 0, 1);
  add((1 << 20) - 1, 0, 2);
  EXPECT_EQ(code(), TCPX_OUT_OF_RANGE);
  add(0, UINT64_MAX, 2);
  EXPECT_EQ(code(), TCPX_OUT_OF_RANGE);
  add(0, 0, 1);
  remotes_[0].length = 2;
  EXPECT_EQ(code(), TCPX_INVALID_ARGUMENT);
  add(0, 0, 1);
  remotes_[0].region = nullptr;
  EXPECT_EQ(code(), TCPX_INVALID_ARGUMENT);
  add(0, 0, 1);
  locals_[0].region = local_ + 1;
  EXPECT_EQ(code(), TCPX_NOT_FOUND);
  remote_.access = TCPX_REMOTE_READ;
  add(0, 0, 1);
  EXPECT_EQ(code(TCPX_WRITE), TCPX_ACCESS_DENIED);
  add(0, 0, 1);
  EXPECT_EQ(code(TCPX_READ), TCPX_OK);
  remote_.access = 3;
  add(0, 0, 1);
  uint8_t other[16] = {1};
  EXPECT_EQ(make_plan({TCPX_READ, locals_, remotes_, other, 4096}, table_, &plan).code(),
            TCPX_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tcpx
