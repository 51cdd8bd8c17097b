// Structs that may grow: callers that were compiled with an older header, or with a newer one.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "../support/engines.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = 4096;
constexpr uint8_t kPoison = 0xA5;

// A struct as another version of the header has it: `known` bytes in a poisoned place.
template <class T>
struct Versioned {
  alignas(T) uint8_t bytes[sizeof(T) + 64];
  explicit Versioned(size_t known) {
    memset(bytes, kPoison, sizeof bytes);
    get()->struct_size = known;
  }
  T* get() { return reinterpret_cast<T*>(bytes); }
  // Whether nothing from `from` on was written.
  bool untouched(size_t from) const {
    return std::all_of(bytes + from, bytes + sizeof bytes, [](uint8_t b) { return b == kPoison; });
  }
};

struct StructSize : ::testing::Test {
  void SetUp() override {
    pair.allocate(kBytes);
    transfer = pair.prepare(TCPX_WRITE, kBytes);
  }
  Pair pair{loopback_options()};
  Transfer transfer;
};

TEST_F(StructSize, AnOlderCallerGetsWhatItKnows) {
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  const size_t known = offsetof(tcpx_receipt, pieces);
  Versioned<tcpx_receipt> old(known);
  ASSERT_EQ(tcpx_receipt_get(transfer.raw(), old.get()), TCPX_OK);
  EXPECT_EQ(old.get()->bytes, kBytes);
  EXPECT_STREQ(old.get()->path, "tcp");
  EXPECT_EQ(old.get()->struct_size, known);
  EXPECT_TRUE(old.untouched(known)) << "bytes behind the caller's struct were written";
  Versioned<tcpx_peer_info> info(offsetof(tcpx_peer_info, generation));
  ASSERT_EQ(tcpx_peer_get(pair.a.raw(), pair.b_at_a, info.get()), TCPX_OK);
  EXPECT_GE(info.get()->lanes, 1u);
  EXPECT_TRUE(info.untouched(offsetof(tcpx_peer_info, generation)));
}

// What was added to receipts stands behind the first version, which zero stands for.
TEST_F(StructSize, ACallerOfTheFirstVersionGetsTheReceiptOfThen) {
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  const size_t first = offsetof(tcpx_receipt, local_memory);
  EXPECT_EQ(first, 256u);
  for (size_t known : {first, size_t{0}}) {
    Versioned<tcpx_receipt> old(known);
    ASSERT_EQ(tcpx_receipt_get(transfer.raw(), old.get()), TCPX_OK) << tcpx_last_error();
    EXPECT_GT(old.get()->total_us, 0);
    EXPECT_TRUE(old.untouched(first)) << "bytes behind the caller's struct were written";
  }
  Versioned<tcpx_receipt> now(sizeof(tcpx_receipt));
  ASSERT_EQ(tcpx_receipt_get(transfer.raw(), now.get()), TCPX_OK);
  EXPECT_STREQ(now.get()->local_memory, "host");
  EXPECT_STREQ(now.get()->remote_memory, "host");
  EXPECT_EQ(now.get()->slot_wait_us, 0);
}

TEST_F(StructSize, ANewerCallerGetsZerosForWhatIsNotKnownHere) {
  ASSERT_TRUE(succeeded(transfer.post()));
  ASSERT_TRUE(succeeded(transfer.wait(kLong)));
  Versioned<tcpx_receipt> newer(sizeof(tcpx_receipt) + 32);
  ASSERT_EQ(tcpx_receipt_get(transfer.raw(), newer.get()), TCPX_OK);
  EXPECT_EQ(newer.get()->bytes, kBytes);
  for (size_t i = 0; i < 32; ++i) ASSERT_EQ(newer.bytes[sizeof(tcpx_receipt) + i], 0) << i;
  EXPECT_TRUE(newer.untouched(sizeof(tcpx_receipt) + 32));
}

TEST_F(StructSize, WhatAnOlderCallerDoesNotGiveIsTheDefault) {
  Versioned<tcpx_post_args> args(offsetof(tcpx_post_args, deadline_ms));
  args.get()->has_notify = 0;
  ASSERT_EQ(tcpx_post(transfer.raw(), args.get()), TCPX_OK) << tcpx_last_error();
  EXPECT_TRUE(succeeded(transfer.wait(kLong))) << "a deadline that was not given counted";
}

TEST_F(StructSize, MemoryOfAnOlderCallerIsForAllPeers) {
  Versioned<tcpx_register_args> args(offsetof(tcpx_register_args, for_peers));
  args.get()->access = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;
  args.get()->memory = TCPX_MEMORY_HOST;
  args.get()->device = 0;
  std::vector<uint8_t> memory(kBytes);
  tcpx_region region = 0;
  ASSERT_EQ(tcpx_register_as(pair.b.raw(), memory.data(), kBytes, args.get(), &region), TCPX_OK)
      << "who may use it was read from behind the caller's struct: " << tcpx_last_error();
  EXPECT_EQ(tcpx_deregister(pair.b.raw(), region), TCPX_OK);
}

TEST_F(StructSize, WhatANewerCallerAsksForIsNotPassedOver) {
  struct Newer {
    tcpx_post_args args;
    uint64_t more;
  } newer{};
  newer.args.struct_size = sizeof newer;
  EXPECT_EQ(tcpx_post(transfer.raw(), &newer.args), TCPX_OK) << "it asks for nothing new";
  EXPECT_TRUE(succeeded(transfer.wait(kLong)));
  newer.more = 1;
  EXPECT_EQ(tcpx_post(transfer.raw(), &newer.args), TCPX_UNSUPPORTED);
  EXPECT_NE(std::string(tcpx_last_error()).find("tcpx_post_args"), std::string::npos);
}

TEST_F(StructSize, WhatWasNeverSetIsRefused) {
  Versioned<tcpx_receipt> receipt(3);
  EXPECT_EQ(tcpx_receipt_get(transfer.raw(), receipt.get()), TCPX_INVALID_ARGUMENT);
  Versioned<tcpx_post_args> args(size_t{1} << 40);
  EXPECT_EQ(tcpx_post(transfer.raw(), args.get()), TCPX_INVALID_ARGUMENT);
  tcpx_register_args register_args{};
  register_args.struct_size = 1;
  uint8_t byte = 0;
  tcpx_region region = 0;
  EXPECT_EQ(tcpx_register_as(pair.a.raw(), &byte, 1, &register_args, &region),
            TCPX_INVALID_ARGUMENT);
  EXPECT_NE(std::string(tcpx_last_error()).find("sizeof"), std::string::npos);
}

}  // namespace
}  // namespace tcpx::test
