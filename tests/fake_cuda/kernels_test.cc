// Kernels are functions of the CPU that see memory as the device does.
#include "fixture.h"

namespace tcpx::test {
namespace {

struct Pieces {
  uint64_t slot;
  uint32_t count, pad;
  struct {
    uint64_t address;
    uint32_t offset, bytes;
  } piece[255];
};

struct Kernels : FakeDriver {
  static constexpr int kImage = 0;
  void* module = nullptr;
  Stream stream = nullptr;
  void SetUp() override {
    FakeDriver::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cu("cuModuleLoadData", &module, &kImage), 0);
    stream = make_stream();
  }
  void* kernel(const char* name) {
    void* found = nullptr;
    EXPECT_EQ(cu("cuModuleGetFunction", &found, module, name), 0);
    return found;
  }
  int launch(void* what, void* param, unsigned block = 512) {
    void* params[] = {param};
    return cu("cuLaunchKernel", what, 2, 1, 1, block, 1, 1, 0, stream, &params[0],
              static_cast<void**>(nullptr));
  }
};

TEST_F(Kernels, GatherAndScatter) {
  const uint64_t from = device_memory(100'000), to = device_memory(100'000);
  uint8_t* slot = pinned(64 << 10);
  const Pattern pattern(5);
  pattern.fill(fake().host_view(from), 100'000, 0);
  Pieces pieces{reinterpret_cast<uint64_t>(slot), 200, 0, {}};
  for (uint32_t i = 0; i < 200; ++i) pieces.piece[i] = {from + i * 499, i * 200, 177 + i % 3};
  ASSERT_EQ(launch(kernel("tcpx_gather"), &pieces), 0);
  for (uint32_t i = 0; i < 200; ++i) pieces.piece[i].address += to - from;
  ASSERT_EQ(launch(kernel("tcpx_scatter"), &pieces), 0);  // what it was launched with is copied
  std::memset(&pieces, 0xEE, sizeof pieces);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  for (uint32_t i = 0; i < 200; ++i) {
    ASSERT_EQ(pattern.mismatch(slot + i * 200, 177 + i % 3, i * 499), -1) << i;
    ASSERT_EQ(pattern.mismatch(fake().host_view(to + i * 499), 177 + i % 3, i * 499), -1) << i;
  }
}

TEST_F(Kernels, OnesOwn) {
  static std::atomic<unsigned> grid{0};
  const size_t sizes[] = {8, 4};
  fake().register_kernel(
      "fill",
      [](void** params, unsigned grid_x, unsigned) {
        grid = grid_x;
        std::memset(fake().view(*static_cast<uint64_t*>(params[0]), 100),
                    static_cast<int>(*static_cast<uint32_t*>(params[1])), 100);
      },
      sizes, 2);
  uint64_t to = device_memory(100);
  uint32_t value = 0x77;
  void* params[] = {&to, &value};
  ASSERT_EQ(cu("cuLaunchKernel", kernel("fill"), 3, 1, 1, 32, 1, 1, 0, stream, &params[0],
               static_cast<void**>(nullptr)),
            0);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(fake().host_view(to)[99], 0x77);
  EXPECT_EQ(grid, 3u);
  void* none = nullptr;
  EXPECT_EQ(cu("cuModuleGetFunction", &none, module, "no_such_kernel"), kNotFound);
}

// What a device must not touch breaks the context for good: also for other streams, not for other
// contexts.
struct BadKernels : Kernels {
  uint8_t* slot = nullptr;
  uint64_t memory = 0;
  void* gather = nullptr;
  void SetUp() override {
    Kernels::SetUp();
    if (IsSkipped()) return;
    slot = pinned(4096);
    memory = device_memory(4096);
    gather = kernel("tcpx_gather");
  }
  void expect_broken_by(uint64_t to, uint64_t from, uint32_t bytes) {
    Pieces pieces{to, 1, 0, {{from, 0, bytes}}};
    Stream other = make_stream();
    ASSERT_EQ(launch(gather, &pieces), 0);
    EXPECT_EQ(cu("cuStreamSynchronize", stream), kIllegalAddress);
    EXPECT_EQ(cu("cuStreamQuery", other), kIllegalAddress);
    uint64_t none = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &none, 4096), kIllegalAddress);
    EXPECT_EQ(out_of_device(slot, memory, 10, other), kIllegalAddress);
    DeviceMemory in_another_context(4096);
    EXPECT_EQ(in_another_context.damage(), "");
  }
};
TEST_F(BadKernels, BehindTheEnd) {
  expect_broken_by(reinterpret_cast<uint64_t>(slot), memory + 4000, 97);
}
TEST_F(BadKernels, FreedMemory) {
  const uint64_t gone = device_memory(4096);
  ASSERT_EQ(cu("cuMemFree_v2", gone), 0);
  expect_broken_by(reinterpret_cast<uint64_t>(slot), gone, 10);
}
TEST_F(BadKernels, PageableMemory) {
  std::vector<uint8_t> pageable(4096);
  expect_broken_by(reinterpret_cast<uint64_t>(pageable.data()), memory, 10);
}
TEST_F(BadKernels, AnotherDevicesMemory) {
  DeviceMemory other(4096, 1);
  expect_broken_by(reinterpret_cast<uint64_t>(slot), other.device_address(), 10);
}

TEST_F(Kernels, OfAnotherContextAreRefused) {
  void* gather = kernel("tcpx_gather");
  Pieces pieces{};
  Context other = nullptr;
  ASSERT_EQ(cu("cuCtxCreate_v2", &other, 0, 0), 0);
  EXPECT_EQ(launch(gather, &pieces), kInvalidHandle);
  ASSERT_EQ(cu("cuCtxDestroy_v2", other), 0);
  EXPECT_EQ(launch(gather, &pieces, 1025), kInvalidValue);
  EXPECT_EQ(launch(gather, &pieces), 0);
  ASSERT_EQ(cu("cuModuleUnload", module), 0);
  EXPECT_EQ(launch(gather, &pieces), kInvalidHandle);
}

// The processors are somebody else's; copies go on.
TEST_F(Kernels, HeldOnesDoNotStart) {
  const uint64_t memory = device_memory(4096);
  uint8_t* slot = pinned(4096);
  std::memset(fake().host_view(memory), 3, 4096);
  Pieces pieces{reinterpret_cast<uint64_t>(slot), 1, 0, {{memory, 0, 10}}};
  Stream copies = make_stream();
  ASSERT_TRUE(fake().plan("hold_kernels:0"));
  ASSERT_EQ(launch(kernel("tcpx_gather"), &pieces), 0);
  ASSERT_EQ(out_of_device(slot + 100, memory, 10, copies), 0);
  ASSERT_EQ(cu("cuStreamSynchronize", copies), 0);
  EXPECT_EQ(slot[100], 3);
  EXPECT_EQ(cu("cuStreamQuery", stream), kNotReady);
  fake().release();
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(slot[9], 3);
  ASSERT_TRUE(fake().plan("hold_kernels:50"));
  EXPECT_GE(milliseconds_of([&] {
              EXPECT_EQ(launch(kernel("tcpx_gather"), &pieces), 0);
              EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
            }),
            45);
}

}  // namespace
}  // namespace tcpx::test
