#include "memory/region_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <vector>

#include "../support/env.h"

namespace tcpx {
namespace {

using test::smaller_if_sanitized;

wire::Piece piece_of(uint64_t id, uint64_t offset, uint64_t length) {
  return {id, offset, length};
}

constexpr RegionUser kAnybody{7, 1};

TEST(RegionTable, ResolvesInsideAndRefusesOutside) {
  RegionTable table;
  std::vector<uint8_t> memory(1000);
  uint64_t id = 0;
  ASSERT_TRUE(table.add({memory.data(), 1000, TCPX_REMOTE_READ | TCPX_REMOTE_WRITE}, &id).ok());
  struct Case {
    uint64_t offset, length;
    tcpx_code code;
  } cases[] = {
      {0, 1000, TCPX_OK},
      {0, 0, TCPX_OK},
      {1000, 0, TCPX_OK},
      {999, 1, TCPX_OK},
      {0, 1001, TCPX_OUT_OF_RANGE},
      {1000, 1, TCPX_OUT_OF_RANGE},
      {1001, 0, TCPX_OUT_OF_RANGE},
      {UINT64_MAX, 1, TCPX_OUT_OF_RANGE},
      {1, UINT64_MAX, TCPX_OUT_OF_RANGE},
      {UINT64_MAX, UINT64_MAX, TCPX_OUT_OF_RANGE},
  };
  for (const Case& c : cases) {
    Resolved out;
    EXPECT_EQ(table.resolve(piece_of(id, c.offset, c.length), TCPX_REMOTE_WRITE, kAnybody, &out),
              c.code)
        << c.offset << "+" << c.length;
    if (c.code == TCPX_OK) {
      EXPECT_EQ(out.at, memory.data() + c.offset);
    }
  }
}

TEST(RegionTable, AccessBitsAreEnforced) {
  RegionTable table;
  uint8_t byte;
  uint64_t none = 0, read = 0;
  ASSERT_TRUE(table.add({&byte, 1, 0}, &none).ok());
  ASSERT_TRUE(table.add({&byte, 1, TCPX_REMOTE_READ}, &read).ok());
  Resolved out;
  EXPECT_EQ(table.resolve(piece_of(none, 0, 1), TCPX_REMOTE_READ, kAnybody, &out),
            TCPX_ACCESS_DENIED);
  EXPECT_EQ(table.resolve(piece_of(read, 0, 1), TCPX_REMOTE_WRITE, kAnybody, &out),
            TCPX_ACCESS_DENIED);
  EXPECT_EQ(table.resolve(piece_of(read, 0, 1), TCPX_REMOTE_READ, kAnybody, &out), TCPX_OK);
}

TEST(RegionTable, RetiredIdsNameNothingEvenAfterTheSlotIsReused) {
  RegionTable table;
  uint8_t byte;
  std::set<uint64_t> seen;
  uint64_t old = 0;
  for (int i = 0; i < 1000; ++i) {
    uint64_t id = 0;
    ASSERT_TRUE(table.add({&byte, 1, 3}, &id).ok());
    EXPECT_TRUE(seen.insert(id).second) << "an id came twice";
    Resolved out;
    if (old != 0) {
      EXPECT_EQ(table.resolve(piece_of(old, 0, 1), 0, kAnybody, &out), TCPX_STALE_REGION);
    }
    ASSERT_TRUE(table.retire(id).ok());
    EXPECT_FALSE(table.is_live(id));
    EXPECT_TRUE(table.retire(id).ok()) << "the fence goes on";
    table.recycle(id);
    EXPECT_EQ(table.retire(id).code(), TCPX_NOT_FOUND);
    table.recycle(id);  // of who came second
    old = id;
  }
  EXPECT_EQ(table.size(), 0u);
}

TEST(RegionTable, TenThousandRegions) {
  RegionTable table;
  std::vector<uint8_t> memory(10'000);
  std::vector<uint64_t> ids(memory.size());
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(table.add({&memory[i], 1, 3}, &ids[i]).ok());
  for (size_t i = 0; i < ids.size(); ++i) {
    Resolved out;
    ASSERT_EQ(table.resolve(piece_of(ids[i], 0, 1), 3, kAnybody, &out), TCPX_OK);
    ASSERT_EQ(out.at, &memory[i]);
  }
}

TEST(RegionTable, UnknownSlotsAndBadRegistrations) {
  RegionTable table;
  Resolved out;
  for (uint64_t id : {uint64_t{0}, uint64_t{1} << 32, UINT64_MAX, uint64_t{1} << 32 | 5000})
    EXPECT_EQ(table.resolve({id, 0, 0}, 0, kAnybody, &out), TCPX_NOT_FOUND) << id;
  uint64_t id = 0;
  EXPECT_EQ(table.add({nullptr, 1, 0}, &id).code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(table.add({out.at + 16, UINT64_MAX, 0}, &id).code(), TCPX_INVALID_ARGUMENT);
  uint8_t byte;
  EXPECT_EQ(table.add({&byte, 1, 4}, &id).code(), TCPX_INVALID_ARGUMENT);
}

// ---- suspend and resume
// --------------------------------------------------------------------------

TEST(RegionTable, AResumedRegionIsRefusedToTransfersFromBefore) {
  RegionTable table;
  uint8_t byte;
  Resolved out;
  uint64_t id = 0, other = 0;
  std::atomic<uint64_t> epoch{1};
  ASSERT_TRUE(table.add({&byte, 1, 3}, &id).ok());
  ASSERT_TRUE(table.add({&byte, 1, 3}, &other).ok());
  for (uint64_t round = 2; round < 5; ++round) {
    ASSERT_TRUE(table.retire(id).ok());
    table.suspend(id);
    EXPECT_EQ(table.resolve(piece_of(id, 0, 1), 3, {7, UINT64_MAX}, &out), TCPX_STALE_REGION);
    ASSERT_TRUE(table.resume(id, &epoch).ok());
    EXPECT_EQ(epoch, round);
    EXPECT_EQ(table.resolve(piece_of(id, 0, 1), 3, {7, round - 1}, &out), TCPX_STALE_REGION);
    EXPECT_EQ(table.resolve(piece_of(id, 0, 1), 3, {7, round}, &out), TCPX_OK);
    EXPECT_EQ(table.resolve(piece_of(other, 0, 1), 3, {7, 1}, &out), TCPX_OK) << "not concerned";
  }
  EXPECT_EQ(table.resume(id, &epoch).code(), TCPX_NOT_FOUND) << "it is not suspended";
  EXPECT_EQ(epoch, 4u) << "which is no reason to tell anybody";
  ASSERT_TRUE(table.retire(id).ok());
  table.suspend(id);
  EXPECT_TRUE(table.drop_suspended(id));
  EXPECT_FALSE(table.drop_suspended(id));
  uint64_t next = 0;
  ASSERT_TRUE(table.add({&byte, 1, 3}, &next).ok());
  EXPECT_EQ(table.resolve(piece_of(next, 0, 1), 3, {7, 1}, &out), TCPX_OK) << "a new region";
}

// ---- ids
// -----------------------------------------------------------------------------------------

TEST(RegionTable, IdsOfASlotNeverRepeatAndTheNextCannotBeToldFromThoseBefore) {
  RegionTable table;
  std::vector<uint64_t> ids(smaller_if_sanitized(1'000'000, 50'000));
  uint8_t byte;
  for (uint64_t& id : ids) {
    ASSERT_TRUE(table.add({&byte, 1, 3}, &id).ok());
    ASSERT_TRUE(table.retire(id).ok());
    table.recycle(id);
    ASSERT_EQ(RegionIds::slot_of(id), RegionIds::slot_of(ids[0])) << "one slot is enough";
  }
  // Distances between one id and the next: none twice would be a pattern of its own, but a counter
  // has one distance only. Each bit of the generation changes about every other time.
  std::vector<size_t> changes(64 - RegionIds::kSlotBits);
  for (size_t i = 1; i < ids.size(); ++i)
    for (size_t bit = 0; bit < changes.size(); ++bit)
      changes[bit] += ((ids[i] ^ ids[i - 1]) >> (RegionIds::kSlotBits + bit)) & 1;
  for (size_t bit = 0; bit < changes.size(); ++bit)
    EXPECT_NEAR(static_cast<double>(changes[bit]) / static_cast<double>(ids.size()), 0.5, 0.02)
        << bit;
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end()) << "an id came twice";
}

TEST(RegionTable, WhatIsNearAnIdNamesNothing) {
  RegionTable table;
  std::vector<uint8_t> memory(100);
  std::vector<uint64_t> ids(memory.size());
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(table.add({&memory[i], 1, 3}, &ids[i]).ok());
  Resolved out;
  std::set<uint64_t> real(ids.begin(), ids.end());
  for (uint64_t id : ids) {
    for (uint64_t step : {uint64_t{1}, uint64_t{1} << RegionIds::kSlotBits, uint64_t{1} << 32})
      for (uint64_t near : {id + step, id - step}) {
        if (!real.contains(near)) {
          EXPECT_NE(table.resolve(piece_of(near, 0, 1), 0, kAnybody, &out), TCPX_OK);
        }
      }
    for (int bit = 0; bit < 64; ++bit) {
      if (uint64_t near = id ^ (uint64_t{1} << bit); !real.contains(near)) {
        EXPECT_NE(table.resolve(piece_of(near, 0, 1), 0, kAnybody, &out), TCPX_OK);
      }
    }
  }
}

TEST(RegionTable, TheSlotThatRestedLongestIsUsedNext) {
  RegionTable table;
  uint8_t byte;
  std::vector<uint64_t> ids(3);
  for (uint64_t& id : ids) ASSERT_TRUE(table.add({&byte, 1, 3}, &id).ok());
  for (uint64_t id : ids) {
    ASSERT_TRUE(table.retire(id).ok());
    table.recycle(id);
  }
  for (uint64_t old : ids) {
    uint64_t id = 0;
    ASSERT_TRUE(table.add({&byte, 1, 3}, &id).ok());
    EXPECT_EQ(RegionIds::slot_of(id), RegionIds::slot_of(old));
  }
}

TEST(RegionIds, ASlotEndsAfterItsLastGeneration) {
  RegionIds ids;
  uint64_t given = RegionIds::kGenerations - 3, id = 0;
  std::set<uint64_t> seen;
  Status status;
  while ((status = ids.next(9, &given, &id)).ok()) {
    EXPECT_EQ(RegionIds::slot_of(id), 9u);
    EXPECT_NE(RegionIds::generation_of(id), 0u);
    EXPECT_TRUE(seen.insert(id).second);
  }
  EXPECT_EQ(status.code(), TCPX_LIMIT);
  EXPECT_LE(seen.size(), 2u);
}

TEST(RegionIds, AnotherTableHasOthers) {
  uint64_t one = 0, two = 0, given = 0;
  RegionIds a, b;
  ASSERT_TRUE(a.next(0, &given, &one).ok());
  given = 0;
  ASSERT_TRUE(b.next(0, &given, &two).ok());
  EXPECT_NE(one, two);
}

// ---- grants
// --------------------------------------------------------------------------------------

TEST(RegionTable, AGrantedRegionIsForThosePeersOnly) {
  RegionTable table;
  uint8_t byte;
  Resolved out;
  uint64_t id = 0, open = 0;
  ASSERT_TRUE(table.add({&byte, 1, 3}, &id, std::make_unique<Grants>(Grants{2, 5})).ok());
  ASSERT_TRUE(table.add({&byte, 1, 3}, &open).ok());
  auto may = [&](uint64_t peer) {
    tcpx_code code = table.resolve(piece_of(id, 0, 1), 3, {peer, 1}, &out);
    EXPECT_TRUE(code == TCPX_OK || code == TCPX_ACCESS_DENIED);
    return code == TCPX_OK;
  };
  EXPECT_TRUE(may(2) && may(5));
  EXPECT_FALSE(may(0) || may(3) || may(6));
  std::unique_ptr<const Grants> old;
  ASSERT_TRUE(table.grant(id, 3, &old).ok());
  EXPECT_NE(old, nullptr);
  EXPECT_TRUE(may(2) && may(3) && may(5));
  old.reset();
  ASSERT_TRUE(table.grant(id, 3, &old).ok());
  EXPECT_EQ(old, nullptr) << "it had it already";
  ASSERT_TRUE(table.revoke_grant(id, 2, &old).ok());
  EXPECT_FALSE(may(2));
  EXPECT_TRUE(may(3) && may(5));
  EXPECT_EQ(table.grant(open, 3, &old).code(), TCPX_UNSUPPORTED);
  EXPECT_EQ(table.grant(id + 1, 3, &old).code(), TCPX_NOT_FOUND);
  std::atomic<uint64_t> epoch{1};
  ASSERT_TRUE(table.retire(id).ok());
  table.suspend(id);
  ASSERT_TRUE(table.resume(id, &epoch).ok());
  EXPECT_EQ(table.resolve(piece_of(id, 0, 1), 3, {5, 2}, &out), TCPX_OK);
  EXPECT_EQ(table.resolve(piece_of(id, 0, 1), 3, {2, 2}, &out), TCPX_ACCESS_DENIED);
}

}  // namespace
}  // namespace tcpx
