// What holds for the real driver too: these tests run on either (TCPX_TEST_CUDA=real), so that the
// fake is known to behave like it.
#include "fixture.h"

namespace tcpx::test {
namespace {

struct Facts : testing::Test {
  void SetUp() override {
    (void)cuda();
    ASSERT_EQ(cu("cuCtxCreate_v2", &context, 0, 0), 0);
    ASSERT_EQ(cu("cuStreamCreate", &stream, 1), 0);
    ASSERT_EQ(cu("cuMemAlloc_v2", &memory, kSize), 0);
    ASSERT_EQ(cu("cuMemHostAlloc", &pinned, kSize, 3), 0);
  }
  void TearDown() override { EXPECT_EQ(cu("cuCtxDestroy_v2", context), 0); }

  template <class T>
  static T attribute(int which, uint64_t address) {
    T value{};
    EXPECT_EQ(cu("cuPointerGetAttribute", &value, which, address), 0) << which;
    return value;
  }

  static constexpr size_t kSize = 1 << 20;
  void *context = nullptr, *stream = nullptr, *pinned = nullptr;
  uint64_t memory = 0;
  std::vector<uint8_t> pageable = std::vector<uint8_t>(kSize);
};

// What comes of a call without a context is not a fact of every driver: see below.
TEST_F(Facts, AContextIsNeeded) {
  if (fake_cuda() == nullptr) GTEST_SKIP() << "drivers differ in it";
  void* popped = nullptr;
  ASSERT_EQ(cu("cuCtxPopCurrent_v2", &popped), 0);
  uint64_t none = 0;
  EXPECT_EQ(cu("cuMemAlloc_v2", &none, kSize), kInvalidContext);
  EXPECT_EQ(cu("cuMemHostAlloc", &popped, kSize, 3), kInvalidContext);
  EXPECT_EQ(cu("cuStreamCreate", &popped, 1), kInvalidContext);
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, memory, 10, stream), kInvalidContext);
  int device = 0;
  EXPECT_EQ(cu("cuCtxGetDevice", &device), kInvalidContext);
  EXPECT_EQ(cu("cuCtxPopCurrent_v2", &popped), kInvalidContext);
  ASSERT_EQ(cu("cuCtxPushCurrent_v2", context), 0);
}

TEST_F(Facts, OrOneIsFound) {
  if (fake_cuda() == nullptr) GTEST_SKIP() << "drivers differ in it";
  size_t free = 0, all = 0;
  void* popped = nullptr;
  ASSERT_EQ(cu("cuDevicePrimaryCtxRetain", &popped, 0), 0);
  ASSERT_TRUE(fake_cuda()->plan("any_context:1"));
  ASSERT_EQ(cu("cuCtxPopCurrent_v2", &popped), 0);
  cuda_counts()->reset_counters();
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, memory, 10, stream), 0);
  EXPECT_EQ(cu("cuMemGetInfo_v2", &free, &all), 0);
  EXPECT_EQ(fake_cuda()->calls_without_context(), 2u);
  fake_cuda()->clear_plan();
  EXPECT_EQ(cu("cuMemGetInfo_v2", &free, &all), kInvalidContext);
  EXPECT_EQ(fake_cuda()->calls_without_context(), 3u);
  ASSERT_EQ(cu("cuCtxPushCurrent_v2", context), 0);
  EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(cu("cuDevicePrimaryCtxRelease_v2", 0), 0);
}

TEST_F(Facts, CopiesOutOfRangeAreRefused) {
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, memory + kSize - 5, 10 << 20, stream),
            kInvalidValue);
  EXPECT_EQ(cu("cuMemcpyHtoDAsync_v2", uint64_t{4096}, pinned, 10, stream), kInvalidValue);
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, memory, 0, stream), 0);
  EXPECT_EQ(cu("cuStreamQuery", stream), 0) << "nothing was broken";
}

TEST_F(Facts, FreedMemoryIsNotKnown) {
  uint64_t other = 0;
  ASSERT_EQ(cu("cuMemAlloc_v2", &other, 64 << 20), 0);
  ASSERT_EQ(cu("cuMemFree_v2", other), 0);
  unsigned type = 7;
  EXPECT_EQ(cu("cuPointerGetAttribute", &type, 2, other), kInvalidValue);
  EXPECT_EQ(cu("cuMemFree_v2", other), kInvalidValue);
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, other, 10, stream), kInvalidValue);
  EXPECT_EQ(cu("cuMemFree_v2", memory + 512), kInvalidValue);
}

TEST_F(Facts, AttributesOfDeviceMemory) {
  EXPECT_EQ(attribute<unsigned>(2, memory + 100), 2u);
  EXPECT_EQ(attribute<int>(9, memory + 100), 0);
  EXPECT_EQ(attribute<unsigned>(8, memory), 0u);
  EXPECT_EQ(attribute<uint64_t>(11, memory + 100), memory);
  EXPECT_EQ(attribute<size_t>(12, memory + 100), kSize);
  uint64_t start = 0;
  size_t size = 0;
  EXPECT_EQ(cu("cuMemGetAddressRange_v2", &start, &size, memory + 100), 0);
  EXPECT_EQ(start, memory);
  EXPECT_EQ(size, kSize);
  const unsigned yes = 1;
  EXPECT_EQ(cu("cuPointerSetAttribute", &yes, 6, memory), 0);
}

TEST_F(Facts, AttributesOfHostMemory) {
  EXPECT_EQ(attribute<unsigned>(2, reinterpret_cast<uint64_t>(pinned)), 1u);
  uint64_t device = 0;
  EXPECT_EQ(cu("cuMemHostGetDevicePointer_v2", &device, pinned, 0), 0);
  EXPECT_EQ(device, reinterpret_cast<uint64_t>(pinned));
  EXPECT_EQ(cu("cuMemHostGetDevicePointer_v2", &device, pageable.data(), 0), kInvalidValue);
  // Asked for several, the driver has no complaint about memory that it does not know.
  unsigned type = 7;
  int which = 2;
  void* values[] = {&type};
  EXPECT_EQ(cu("cuPointerGetAttributes", 1, &which, &values[0],
               reinterpret_cast<uint64_t>(pageable.data())),
            0);
  EXPECT_EQ(type, 0u);
}

TEST_F(Facts, HostMemoryIsRegisteredOnce) {
  EXPECT_EQ(cu("cuMemHostRegister_v2", pageable.data(), kSize, 3), 0);
  EXPECT_EQ(cu("cuMemHostRegister_v2", pageable.data(), kSize, 3), kAlreadyRegistered);
  uint64_t device = 0;
  EXPECT_EQ(cu("cuMemHostGetDevicePointer_v2", &device, pageable.data(), 0), 0);
  EXPECT_EQ(cu("cuMemHostUnregister", pageable.data()), 0);
  EXPECT_EQ(cu("cuMemHostUnregister", pageable.data()), kNotRegistered);
}

TEST_F(Facts, BufferIdsAreNotUsedAgain) {
  uint64_t a = 0, b = 0;
  ASSERT_EQ(cu("cuMemAlloc_v2", &a, 64 << 20), 0);
  const uint64_t first = attribute<uint64_t>(7, a);
  ASSERT_EQ(cu("cuMemFree_v2", a), 0);
  ASSERT_EQ(cu("cuMemAlloc_v2", &b, 64 << 20), 0);
  EXPECT_NE(attribute<uint64_t>(7, b), first);
  ASSERT_EQ(cu("cuMemFree_v2", b), 0);
}

TEST_F(Facts, OfAnotherContext) {
  void *other = nullptr, *event = nullptr;
  ASSERT_EQ(cu("cuCtxCreate_v2", &other, 0, 0), 0);
  EXPECT_EQ(cu("cuStreamQuery", stream), 0);
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, memory, 10, stream), 0);
  ASSERT_EQ(cu("cuEventCreate", &event, 2), 0);
  EXPECT_EQ(cu("cuEventRecord", event, stream), kInvalidHandle);
  ASSERT_EQ(cu("cuCtxDestroy_v2", other), 0);
  EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
}

TEST_F(Facts, ValuesAreWrittenToMemoryOfTheDriver) {
  auto write = [&](uint64_t at) { return cu("cuStreamWriteValue32_v2", stream, at, 7, 0); };
  EXPECT_EQ(write(reinterpret_cast<uint64_t>(pinned)), 0);
  EXPECT_EQ(write(reinterpret_cast<uint64_t>(pinned) + 2), kInvalidValue);
  EXPECT_EQ(write(reinterpret_cast<uint64_t>(pageable.data()) / 4 * 4), kInvalidValue);
  EXPECT_EQ(write(memory), 0);
  EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
  uint32_t word = 0;
  EXPECT_EQ(cu("cuMemcpyDtoH_v2", &word, memory, 4), 0);
  EXPECT_EQ(word, 7u);
  EXPECT_EQ(*static_cast<uint32_t*>(pinned), 7u);
}

// Expandable segments: one range of addresses, many allocations.
struct VmmFacts : Facts {
  struct Prop {
    int type = 1, handles = 0, location = 1, device = 0;
    void* none = nullptr;
    uint64_t flags = 0;
  } prop;
  struct {
    int location = 1, device = 0, flags = 3;
  } access;
  size_t chunk = 0;
  uint64_t base = 0;
  std::vector<uint64_t> handles;

  void map(size_t chunks) {
    ASSERT_EQ(cu("cuMemGetAllocationGranularity", &chunk, &prop, 0), 0);
    ASSERT_EQ(cu("cuMemAddressReserve", &base, chunk * 8, 0, uint64_t{0}, 0), 0);
    for (size_t i = 0; i < chunks; ++i) {
      uint64_t& handle = handles.emplace_back();
      ASSERT_EQ(cu("cuMemCreate", &handle, chunk, &prop, 0), 0);
      ASSERT_EQ(cu("cuMemMap", base + i * chunk, chunk, 0, handle, 0), 0);
      ASSERT_EQ(cu("cuMemSetAccess", base + i * chunk, chunk, &access, 1), 0);
    }
  }
  void TearDown() override {
    ASSERT_EQ(cu("cuMemUnmap", base, handles.size() * chunk), 0);
    for (uint64_t handle : handles) EXPECT_EQ(cu("cuMemRelease", handle), 0);
    EXPECT_EQ(cu("cuMemAddressFree", base, chunk * 8), 0);
    Facts::TearDown();
  }
};

TEST_F(VmmFacts, ACopyCrossesAllocations) {
  map(3);
  const Pattern pattern(3);
  pattern.fill(pinned, 1000, 0);
  const uint64_t at = base + chunk - 300;
  ASSERT_EQ(cu("cuMemcpyHtoDAsync_v2", at, pinned, 1000, stream), 0);
  ASSERT_EQ(cu("cuMemcpyDtoHAsync_v2", static_cast<uint8_t*>(pinned) + 5000, at, 1000, stream), 0);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(pattern.mismatch(static_cast<uint8_t*>(pinned) + 5000, 1000, 0), -1);
}
TEST_F(VmmFacts, WhatIsNotMappedIsRefused) {
  map(2);
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, base + 2 * chunk - 5, 10, stream), kInvalidValue);
  EXPECT_EQ(cu("cuMemcpyDtoHAsync_v2", pinned, base + 3 * chunk, 10, stream), kInvalidValue);
  EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
}
// Its allocation alone, or all that is mapped in a row: the fake does either.
TEST_F(VmmFacts, AnAddressTellsARangeOfWholeAllocations) {
  map(3);
  for (const char* plan : {"neighbours_are_one:0", "neighbours_are_one:1"}) {
    SCOPED_TRACE(plan);
    if (fake_cuda() != nullptr) {
      ASSERT_TRUE(fake_cuda()->plan(plan));
    }
    uint64_t start = 0;
    size_t size = 0;
    ASSERT_EQ(cu("cuMemGetAddressRange_v2", &start, &size, base + chunk + 17), 0);
    const bool alone = start == base + chunk && size == chunk;
    const bool all = start == base && size == 3 * chunk;
    EXPECT_TRUE(alone || all) << start - base << " " << size;
    if (fake_cuda() != nullptr) {
      EXPECT_EQ(all, plan == std::string("neighbours_are_one:1"));
    }
  }
  if (fake_cuda() != nullptr) fake_cuda()->clear_plan();
  const unsigned yes = 1;
  EXPECT_NE(cu("cuPointerSetAttribute", &yes, 6, base), 0) << "has the context's flag for that";
}

// Its attributes tell all that was reserved, and beside that whether anything is there.
TEST_F(VmmFacts, AttributesTellTheReservationAndWhetherItIsMapped) {
  map(3);
  for (size_t i = 0; i < 3; ++i) {
    const uint64_t at = base + i * chunk + 17;
    EXPECT_EQ(attribute<unsigned>(2, at), 2u);
    EXPECT_EQ(attribute<int>(9, at), 0);
    EXPECT_EQ(attribute<unsigned>(10, at), 0u) << "not an allocation that legacy IPC could tell of";
    EXPECT_EQ(attribute<uint64_t>(11, at), base);
    EXPECT_EQ(attribute<size_t>(12, at), 8 * chunk);
    EXPECT_EQ(attribute<unsigned>(13, at), 1u);
  }
  // What is said of the rest is the driver's business, but not that it is there.
  int which[] = {13};
  unsigned mapped = 1;
  void* values[] = {&mapped};
  const int code = cu("cuPointerGetAttributes", 1u, which, values, base + 5 * chunk);
  EXPECT_TRUE(code != 0 || mapped == 0) << code << " " << mapped;
}
TEST_F(Facts, AttributesOfAnAllocation) {
  EXPECT_EQ(attribute<unsigned>(10, memory), 1u);
  EXPECT_EQ(attribute<unsigned>(13, memory), 1u);
}

}  // namespace
}  // namespace tcpx::test
