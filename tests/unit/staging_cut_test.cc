// How the staging of a GPU is cut.
#include "gpu/staging_cut.h"

#include <gtest/gtest.h>

namespace tcpx::gpu {
namespace {

constexpr uint64_t kKiB = 1 << 10, kMiB = 1 << 20;

TEST(StagingCut, AsItIsUnlessToldOtherwise) {
  const StagingCut one(64 * kMiB, 0, 512 * kKiB, 1), sixteen(64 * kMiB, 0, 512 * kKiB, 16);
  EXPECT_EQ(one.chunk, 512 * kKiB);
  EXPECT_EQ(one.slot, 512 * kKiB);
  EXPECT_EQ(one.slots_of_each, 32u);
  EXPECT_EQ(sixteen.chunk, 512 * kKiB);
  EXPECT_EQ(sixteen.slots_of_each, 4u);
}

TEST(StagingCut, WhatDoesNotFitMakesChunksShorter) {
  const StagingCut cut(64 * kMiB, 0, 16 * kMiB, 4);
  EXPECT_EQ(cut.chunk, 8 * kMiB / 3 / 4096 * 4096);
  EXPECT_EQ(cut.slots_of_each, 3u);
}

// Three chunks fit each way, or two where those are pages, whatever was asked for, and all of it
// into the staging.
TEST(StagingCut, AlwaysFits) {
  for (uint64_t staging : {1 * kMiB, 3 * kMiB + 5, 64 * kMiB, 4096 * kMiB})
    for (uint64_t slot : {0ul, 1ul, 4096ul, 5000ul, 100 * kKiB, 16 * kMiB})
      for (uint64_t chunk : {4 * kKiB, 5000ul, 512 * kKiB, 16 * kMiB})
        for (uint64_t loops : {1, 3, 16, 64}) {
          const StagingCut cut(staging, slot, chunk, loops);
          SCOPED_TRACE(testing::Message()
                       << staging << " " << slot << " " << chunk << " " << loops);
          EXPECT_LE(2 * loops * cut.slots_of_each * cut.slot, staging);
          EXPECT_GE(cut.slots_of_each * cut.slot, (cut.chunk == 4096 ? 2 : 3) * cut.chunk);
          EXPECT_GE(cut.chunk, 4096u);
          EXPECT_EQ(cut.chunk % cut.slot, 0u);
          EXPECT_EQ(cut.slot % 4096, 0u);
          EXPECT_LE(cut.chunk, std::max<uint64_t>(chunk, 8192));
        }
}

}  // namespace
}  // namespace tcpx::gpu
