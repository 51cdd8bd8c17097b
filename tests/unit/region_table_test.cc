#include "memory/region_table.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tcpx {
namespace {

wire::Piece piece_of(uint64_t id, uint64_t offset, uint64_t length) {
  return {region_slot(id), region_generation(id), offset, length};
}

TEST(RegionTable, ResolvesInsideAndRefusesOutside) {
  RegionTable table;
  std::vector<uint8_t> memory(1000);
  uint64_t id = 0;
  ASSERT_TRUE(table.add(memory.data(), 1000, TCPX_REMOTE_READ | TCPX_REMOTE_WRITE, &id).ok());
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
    uint8_t* out = nullptr;
    EXPECT_EQ(table.resolve(piece_of(id, c.offset, c.length), TCPX_REMOTE_WRITE, &out), c.code)
        << c.offset << "+" << c.length;
    if (c.code == TCPX_OK) {
      EXPECT_EQ(out, memory.data() + c.offset);
    }
  }
}

TEST(RegionTable, AccessBitsAreEnforced) {
  RegionTable table;
  uint8_t byte;
  uint64_t none = 0, read = 0;
  ASSERT_TRUE(table.add(&byte, 1, 0, &none).ok());
  ASSERT_TRUE(table.add(&byte, 1, TCPX_REMOTE_READ, &read).ok());
  uint8_t* out = nullptr;
  EXPECT_EQ(table.resolve(piece_of(none, 0, 1), TCPX_REMOTE_READ, &out), TCPX_ACCESS_DENIED);
  EXPECT_EQ(table.resolve(piece_of(read, 0, 1), TCPX_REMOTE_WRITE, &out), TCPX_ACCESS_DENIED);
  EXPECT_EQ(table.resolve(piece_of(read, 0, 1), TCPX_REMOTE_READ, &out), TCPX_OK);
}

TEST(RegionTable, RetiredIdsNameNothingEvenAfterTheSlotIsReused) {
  RegionTable table;
  uint8_t byte;
  std::set<uint64_t> seen;
  uint64_t old = 0;
  for (int i = 0; i < 1000; ++i) {
    uint64_t id = 0;
    ASSERT_TRUE(table.add(&byte, 1, 3, &id).ok());
    EXPECT_TRUE(seen.insert(id).second) << "an id came twice";
    uint8_t* out = nullptr;
    if (old != 0) {
      EXPECT_EQ(table.resolve(piece_of(old, 0, 1), 0, &out), TCPX_STALE_REGION);
    }
    ASSERT_TRUE(table.retire(id).ok());
    EXPECT_FALSE(table.is_live(id));
    EXPECT_EQ(table.retire(id).code(), TCPX_NOT_FOUND);
    table.recycle(id);
    old = id;
  }
  EXPECT_EQ(table.size(), 0u);
}

TEST(RegionTable, TenThousandRegions) {
  RegionTable table;
  std::vector<uint8_t> memory(10'000);
  std::vector<uint64_t> ids(memory.size());
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(table.add(&memory[i], 1, 3, &ids[i]).ok());
  for (size_t i = 0; i < ids.size(); ++i) {
    uint8_t* out = nullptr;
    ASSERT_EQ(table.resolve(piece_of(ids[i], 0, 1), 3, &out), TCPX_OK);
    ASSERT_EQ(out, &memory[i]);
  }
}

TEST(RegionTable, UnknownSlotsAndBadRegistrations) {
  RegionTable table;
  uint8_t* out = nullptr;
  EXPECT_EQ(table.resolve({0, 1, 0, 0}, 0, &out), TCPX_NOT_FOUND);
  EXPECT_EQ(table.resolve({UINT32_MAX, 1, 0, 0}, 0, &out), TCPX_NOT_FOUND);
  uint64_t id = 0;
  EXPECT_EQ(table.add(nullptr, 1, 0, &id).code(), TCPX_INVALID_ARGUMENT);
  EXPECT_EQ(table.add(out + 16, UINT64_MAX, 0, &id).code(), TCPX_INVALID_ARGUMENT);
  uint8_t byte;
  EXPECT_EQ(table.add(&byte, 1, 4, &id).code(), TCPX_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace tcpx
