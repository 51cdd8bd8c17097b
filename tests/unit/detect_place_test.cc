// Where memory lies, asked of a driver without a GPU.
#include "gpu/detect_place.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include <tcpx/tcpx.hpp>

#include "../emu/fake_cuda/fake_cuda.h"
#include "gpu/cuda_driver.h"

namespace tcpx {
namespace {

// Addresses that nobody touches.
constexpr uint64_t kSomewhere = uint64_t{1} << 46, kMiB = 1 << 20;

struct DetectPlace : testing::Test {
  static const FakeCuda& cuda() {
    static const FakeCuda* const fake = [] {
      void* library = dlopen(TCPX_TEST_FAKE_CUDA_PATH, RTLD_NOW | RTLD_LOCAL);
      return static_cast<const FakeCuda*>(library == nullptr ? nullptr
                                                             : dlsym(library, "fakeCuda"));
    }();
    return *fake;
  }
  static Status detect(uint64_t at, uint64_t length, Place* out) {
    return gpu::detect_place(reinterpret_cast<void*>(at), length, out);
  }
  Place place{Place::Kind::kCuda, 7};
};

TEST_F(DetectPlace, WhatTheDriverDoesNotKnowIsTheHosts) {
  ASSERT_NE(&cuda(), nullptr);
  ASSERT_NE(gpu::loaded_cuda_driver(), nullptr);
  std::vector<uint8_t> memory(100);
  EXPECT_TRUE(gpu::detect_place(memory.data(), memory.size(), &place).ok());
  EXPECT_EQ(place, Place{});
  EXPECT_TRUE(detect(kSomewhere, UINT64_MAX, &place).ok());
}

TEST_F(DetectPlace, KnowsTheDevice) {
  cuda().add_range(kSomewhere, kMiB, 1, false);
  ASSERT_TRUE(detect(kSomewhere + 5, 1000, &place).ok());
  EXPECT_EQ(place, (Place{Place::Kind::kCuda, 1}));
}

// As expandable segments are: many allocations in a row.
TEST_F(DetectPlace, WalksTheWholeRange) {
  for (uint64_t i = 0; i < 8; ++i) cuda().add_range(kSomewhere + i * kMiB, kMiB, 0, false);
  ASSERT_TRUE(detect(kSomewhere + 17, 8 * kMiB - 17, &place).ok());
  EXPECT_EQ(place, (Place{Place::Kind::kCuda, 0}));
  Status status = detect(kSomewhere + 17, 8 * kMiB, &place);  // 17 bytes behind its end
  EXPECT_EQ(status.code(), TCPX_INVALID_ARGUMENT);
  EXPECT_NE(status.text().find("host from byte 8388591 of 8388608"), std::string::npos)
      << status.text();
}

TEST_F(DetectPlace, OneRegionIsOnOneDevice) {
  cuda().add_range(kSomewhere, kMiB, 0, false);
  cuda().add_range(kSomewhere + kMiB, kMiB, 1, false);
  Status status = detect(kSomewhere, 2 * kMiB, &place);
  EXPECT_EQ(status.code(), TCPX_INVALID_ARGUMENT);
  EXPECT_NE(status.text().find("cuda:0 at first, and cuda:1 from byte 1048576"), std::string::npos)
      << status.text();
}

TEST_F(DetectPlace, ManagedMemoryIsTheHostsWhereBothMayTouchIt) {
  cuda().add_range(kSomewhere, kMiB, 1, true);
  cuda().allow_concurrent_managed_access(false);
  EXPECT_EQ(detect(kSomewhere, kMiB, &place).code(), TCPX_UNSUPPORTED);
  cuda().allow_concurrent_managed_access(true);
  ASSERT_TRUE(detect(kSomewhere, kMiB, &place).ok());
  EXPECT_EQ(place, Place{});
}

// Where it is switched off nothing of CUDA is touched.
TEST_F(DetectPlace, RegisteringDeviceMemoryIsRefusedWhereItIsSwitchedOff) {
  cuda().add_range(kSomewhere, kMiB, 1, false);
  Engine engine;
  ASSERT_TRUE(Engine::create(
      {{"interfaces", "127.0.0.1"}, {"allow_path", "tcp"}, {"gpu_memory", "off"}}, &engine));
  tcpx_region region = 0;
  Result result =
      engine.register_memory(reinterpret_cast<void*>(kSomewhere), 4096, TCPX_REMOTE_READ, &region);
  EXPECT_EQ(result.code(), TCPX_UNSUPPORTED);
  EXPECT_NE(std::string(result.text()).find("cuda:1"), std::string::npos) << result.text();
  std::vector<uint8_t> memory(100);
  EXPECT_TRUE(engine.register_memory(memory.data(), memory.size(), TCPX_REMOTE_READ, &region));
}

}  // namespace
}  // namespace tcpx
