// Places below the public API: regions that say where they lie, and an owner that insists on it.
// The "device" is host memory with another name, and lanes use it as it is.
#include <gtest/gtest.h>

#include "core_pair.h"

namespace tcpx {
namespace {

class NamesOnly final : public Movers {
 public:
  Status admit(const void*, uint64_t, const Place& place) override {
    if (place.is_host() || place.device < 4) return {};
    return bad_call(TCPX_UNSUPPORTED, place.text() + " is not served");
  }
  std::unique_ptr<Mover> make(MoverFor, MoveWatcher&) override { return nullptr; }
};

constexpr size_t kHalf = 100'000;

// Each side has two regions: the first half of its memory is on the host, the second on a device.
struct Places : ::testing::Test {
  void SetUp() override {
    for (size_t i = 0; i < 2 * kHalf; ++i) pair.local[i] = static_cast<uint8_t>(i * 31 >> 3);
    std::fill(pair.remote.begin(), pair.remote.end(), 0xAA);
    add(*pair.source, pair.local, 0, &here);
    add(*pair.target, pair.remote, 3, &there);
    for (int i : {0, 1}) {
      described[i] = pair.described;
      described[i].id = there[i];
      described[i].length = kHalf;
      described[i].memory = i == 0 ? TCPX_MEMORY_HOST : TCPX_MEMORY_CUDA;
      described[i].device = i == 0 ? 0 : 1;
    }
  }
  static void add(EngineCore& engine, std::vector<uint8_t>& memory, uint32_t access,
                  uint64_t (*regions)[2]) {
    for (int i : {0, 1}) {
      Place place = i == 0 ? Place{} : Place{Place::Kind::kCuda, 1};
      ASSERT_TRUE(engine.regions()
                      .register_memory(
                          {memory.data() + static_cast<size_t>(i) * kHalf, kHalf, access, place},
                          &(*regions)[i])
                      .ok());
    }
  }
  // A list that goes to and fro between both, in steps that are no neighbours.
  std::shared_ptr<TransferState> move(tcpx_op op) {
    std::vector<tcpx_local_piece> local;
    std::vector<tcpx_remote_piece> remote;
    for (uint64_t at = 0; at < kHalf; at += 10'000)
      for (int i : {0, 1}) {
        local.push_back({here[i], at, 5'000});
        remote.push_back({&described[i], at, 5'000});
      }
    std::shared_ptr<TransferState> transfer;
    EXPECT_TRUE(pair.source->prepare(pair.peer, op, local, remote, &transfer).ok());
    pair.post(transfer);
    transfer->peer->transfers().wait(*transfer, now_ns() + 20 * kSecond);
    return transfer;
  }

  NamesOnly source_movers, target_movers;
  CorePair pair{2 * kHalf, &source_movers, &target_movers};
  uint64_t here[2] = {}, there[2] = {};
  tcpx_remote_region described[2] = {};
};

TEST_F(Places, AListThroughSeveralIsMovedWhole) {
  auto transfer = move(TCPX_WRITE);
  EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.text();
  EXPECT_EQ(transfer->plan.chunks.size(), 20u);
  for (size_t i = 0; i < 2 * kHalf; ++i)
    ASSERT_EQ(pair.remote[i], i % 10'000 < 5'000 ? pair.local[i] : 0xAA) << i;
  std::vector<uint8_t> sent = pair.local;
  std::fill(pair.local.begin(), pair.local.end(), 0x55);
  EXPECT_EQ(move(TCPX_READ)->code.load(), TCPX_OK);
  for (size_t i = 0; i < 2 * kHalf; ++i)
    ASSERT_EQ(pair.local[i], i % 10'000 < 5'000 ? sent[i] : 0x55) << i;
}

// Whoever has not kept to what the descriptions say.
TEST_F(Places, AChunkThatMixesIsRefusedByTheOwner) {
  described[1].memory = TCPX_MEMORY_HOST;
  described[1].device = 0;
  std::swap(here[0], here[1]);
  here[1] = here[0];  // one place on this side, so that one chunk has both of the other
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    auto transfer = move(op);
    EXPECT_LT(transfer->plan.chunks.size(), 20u) << "the test does not mix";
    EXPECT_EQ(transfer->code.load(), TCPX_INVALID_ARGUMENT) << transfer->status.text();
  }
  for (uint8_t byte : pair.remote) ASSERT_EQ(byte, 0xAA);
}

TEST_F(Places, DescriptionsSayWhere) {
  wire::RegionDescription description;
  ASSERT_TRUE(pair.target->regions().describe(there[1], &description).ok());
  EXPECT_EQ(description.memory, TCPX_MEMORY_CUDA);
  EXPECT_EQ(description.device, 1);
  ASSERT_TRUE(pair.target->regions().describe(there[0], &description).ok());
  EXPECT_EQ(description.memory, TCPX_MEMORY_HOST);
}

TEST_F(Places, WhatNobodyMovesIsNotRegistered) {
  uint64_t region = 0;
  Status status = pair.source->regions().register_memory(
      {pair.local.data(), 1, 0, {Place::Kind::kCuda, 7}}, &region);
  EXPECT_EQ(status.code(), TCPX_UNSUPPORTED);
  EXPECT_NE(status.text().find("cuda:7"), std::string::npos) << status.text();
}

}  // namespace
}  // namespace tcpx
