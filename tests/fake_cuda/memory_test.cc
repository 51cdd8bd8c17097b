// Memory that only the device may touch, how much of it there is, and what tests see of it.
#include "fixture.h"

namespace tcpx::test {
namespace {

using Memories = FakeDriver;

TEST_F(Memories, TheCpuCannotTouchADevicesAddress) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const uint64_t address = device_memory(4096);
  *fake().host_view(address) = 1;
  EXPECT_DEATH(*reinterpret_cast<volatile uint8_t*>(address) = 1, "");
}

TEST_F(Memories, ARangeEndsToTheByte) {
  const uint64_t address = device_memory(1000);
  uint8_t* host = pinned(4096);
  Stream stream = make_stream();
  EXPECT_EQ(out_of_device(host, address, 1000, stream), 0);
  EXPECT_EQ(out_of_device(host, address, 1001, stream), kInvalidValue);
  EXPECT_EQ(out_of_device(host + 4000, address, 97, stream), kInvalidValue);
  EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
}

TEST_F(Memories, FreeingWaitsForWhatIsUnderWay) {
  const uint64_t address = device_memory(4096);
  uint8_t* host = pinned(4096);
  *fake().host_view(address) = 4;
  ASSERT_TRUE(fake().plan("copy_us:20000"));
  ASSERT_EQ(out_of_device(host, address, 10, make_stream()), 0);
  ASSERT_EQ(cu("cuMemFree_v2", address), 0);
  EXPECT_EQ(host[0], 4);
}

TEST_F(Memories, AContextTakesItsMemoryAlong) {
  const uint64_t before = fake().device_bytes(0);
  Context other = nullptr;
  ASSERT_EQ(cu("cuCtxCreate_v2", &other, 0, 0), 0);
  const uint64_t address = device_memory(4096);
  EXPECT_EQ(fake().device_bytes(0), before + 4096);
  ASSERT_EQ(cu("cuCtxDestroy_v2", other), 0);
  EXPECT_EQ(fake().device_bytes(0), before);
  EXPECT_EQ(cu("cuMemFree_v2", address), kInvalidValue);
}

TEST_F(Memories, PoolMemoryIsFreedInStreamOrder) {
  Stream stream = make_stream();
  uint8_t* host = pinned(4096);
  uint64_t address = 0;
  ASSERT_EQ(cu("cuMemAllocAsync", &address, 4096, stream), 0);
  *fake().host_view(address) = 4;
  ASSERT_TRUE(fake().plan("copy_us:5000"));
  ASSERT_EQ(out_of_device(host, address, 10, stream), 0);
  ASSERT_EQ(cu("cuMemFreeAsync", address, stream), 0);
  EXPECT_NE(fake().host_view(address), nullptr);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(host[0], 4);
  EXPECT_EQ(fake().host_view(address), nullptr);
}

TEST_F(Memories, ManagedMemoryIsBothSides) {
  uint64_t address = 0;
  ASSERT_EQ(cu("cuMemAllocManaged", &address, 4096, 1), 0);
  *reinterpret_cast<uint8_t*>(address) = 8;
  EXPECT_EQ(*fake().host_view(address), 8);
  unsigned managed = 0;
  EXPECT_EQ(cu("cuPointerGetAttribute", &managed, 8, address), 0);
  EXPECT_EQ(managed, 1u);
  EXPECT_EQ(cu("cuMemFree_v2", address), 0);
}

TEST_F(Memories, ItCanRunOut) {
  const uint64_t before = fake().device_bytes(0), pinned_before = fake().host_bytes();
  ASSERT_TRUE(fake().plan(("device_memory:" + std::to_string(before + 10'000) +
                           ";host_memory:" + std::to_string(pinned_before + 10'000))
                              .c_str()));
  uint64_t address = 0, more = 0;
  void* host = nullptr;
  EXPECT_EQ(cu("cuMemAlloc_v2", &address, 8000), 0);
  EXPECT_EQ(cu("cuMemAlloc_v2", &more, 8000), kOutOfMemory);
  EXPECT_EQ(cu("cuMemHostAlloc", &host, 20'000, 3), kOutOfMemory);
  EXPECT_EQ(cu("cuMemHostAlloc", &host, 5'000, 3), 0);
  EXPECT_EQ(fake().device_bytes(0), before + 8000);
  EXPECT_EQ(cu("cuMemFree_v2", address), 0);
  EXPECT_EQ(cu("cuMemFreeHost", host), 0);
  EXPECT_EQ(fake().device_bytes(0), before);
  EXPECT_EQ(fake().host_bytes(), pinned_before);
}

// A mapping that is gone while a copy waits: the device finds nothing there.
TEST_F(Memories, UnmappedUnderACopy) {
  struct {
    int type = 1, handles = 0, location = 1, device = 0;
    void* none = nullptr;
    uint64_t flags = 0;
  } prop;
  struct {
    int location = 1, device = 0, flags = 3;
  } access;
  uint64_t base = 0, handle = 0;
  constexpr size_t kChunk = 2 << 20;
  ASSERT_EQ(cu("cuMemAddressReserve", &base, kChunk, 0, uint64_t{0}, 0), 0);
  ASSERT_EQ(cu("cuMemCreate", &handle, kChunk, &prop, 0), 0);
  ASSERT_EQ(cu("cuMemMap", base, kChunk, 0, handle, 0), 0);
  uint8_t* host = pinned(4096);
  Stream stream = make_stream();
  EXPECT_EQ(out_of_device(host, base, 10, stream), kInvalidValue) << "no access yet";
  ASSERT_EQ(cu("cuMemSetAccess", base, kChunk, &access, 1), 0);
  ASSERT_TRUE(fake().plan("hang:1"));
  EXPECT_EQ(out_of_device(host, base, 10, stream), 0);
  ASSERT_EQ(cu("cuMemUnmap", base, kChunk), 0);
  fake().release();
  EXPECT_EQ(cu("cuStreamSynchronize", stream), kIllegalAddress);
  EXPECT_EQ(cu("cuMemRelease", handle), 0);
  EXPECT_EQ(cu("cuMemAddressFree", base, kChunk), 0);
}

TEST_F(Memories, OfTests) {
  DeviceMemory memory(100'001, 1, 3);
  Memory& plain = memory;
  EXPECT_EQ(plain.host(), nullptr);
  EXPECT_EQ(memory.device_address() % 8, 3u);
  uint8_t byte = 0;
  memory.load(100'000, &byte, 1);
  EXPECT_EQ(byte, 0xCD);
  fill(plain, 5, 90'000, Pattern(1), 0);
  EXPECT_EQ(mismatch(plain, 5, 90'000, Pattern(1), 0), -1);
  EXPECT_EQ(mismatch(plain, 5, 90'000, Pattern(2), 0), 0);
  EXPECT_EQ(memory.damage(), "");
  *fake().host_view(memory.device_address() + memory.size()) ^= 1;
  EXPECT_EQ(memory.damage(), "0 bytes behind the memory");
  EXPECT_EQ(counts().calls_by_other_threads_than(0), 0u) << "a test's own calls are not counted";
}

TEST_F(Memories, ByKind) {
  auto memory = allocate("cuda:1", 1000, 1);
  EXPECT_EQ(memory->host(), nullptr);
  int device = -1;
  EXPECT_EQ(cu("cuPointerGetAttribute", &device, 9, reinterpret_cast<uint64_t>(memory->address())),
            0);
  EXPECT_EQ(device, 1);
  EXPECT_THROW(allocate("cuda:7", 1000), std::runtime_error);
}

}  // namespace
}  // namespace tcpx::test
