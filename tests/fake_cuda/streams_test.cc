// Work is done later, in the order of its stream, and is seen by who waits for it.
#include "fixture.h"

namespace tcpx::test {
namespace {

struct Streams : FakeDriver {
  static constexpr size_t kSize = 100'000;
  uint64_t device = 0;
  uint8_t *host = nullptr, *words = nullptr;
  void SetUp() override {
    FakeDriver::SetUp();
    if (IsSkipped()) return;
    device = device_memory(kSize);
    host = pinned(2 * kSize);
    words = pinned(4096);
  }
};

TEST_F(Streams, BytesGoOutAndIn) {
  const Pattern pattern(1);
  pattern.fill(host, kSize, 0);
  Stream stream = make_stream();
  ASSERT_EQ(into_device(device, host, kSize, stream), 0);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  std::memset(host, 0, kSize);
  ASSERT_EQ(out_of_device(host, device, kSize, stream), 0);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(pattern.mismatch(host, kSize, 0), -1);
  EXPECT_EQ(pattern.mismatch(fake().host_view(device), kSize, 0), -1);
}

// The value is written when all before it is done, not when the call returns.
TEST_F(Streams, AValueIsWrittenBehindTheCopyBeforeIt) {
  const Pattern pattern(2);
  pattern.fill(fake().host_view(device), kSize, 0);
  Stream stream = make_stream();
  ASSERT_TRUE(fake().plan("copy_us:20000"));
  ASSERT_EQ(out_of_device(host, device, kSize, stream), 0);
  ASSERT_EQ(write_value(stream, words, 7), 0);
  EXPECT_EQ(seen(words), 0u);
  EXPECT_EQ(cu("cuStreamQuery", stream), kNotReady);
  ASSERT_TRUE(comes(words, 7));
  EXPECT_EQ(pattern.mismatch(host, kSize, 0), -1);
  EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(cu("cuStreamQuery", stream), 0);
}

TEST_F(Streams, StreamsDoNotWaitForEachOther) {
  Stream slow = make_stream(), quick = make_stream();
  ASSERT_TRUE(fake().plan("hang:1"));
  ASSERT_EQ(out_of_device(host, device, kSize, slow), 0);
  ASSERT_EQ(out_of_device(host + kSize, device, kSize, quick), 0);
  EXPECT_EQ(cu("cuStreamSynchronize", quick), 0);
  EXPECT_EQ(cu("cuStreamQuery", slow), kNotReady);
  EXPECT_EQ(fake().pending(0), 1u);
  fake().release();
  EXPECT_EQ(cu("cuStreamSynchronize", slow), 0);
}

TEST_F(Streams, ADestroyedStreamEndsWhatItHas) {
  Stream stream = make_stream();
  ASSERT_TRUE(fake().plan("copy_us:5000"));
  ASSERT_EQ(out_of_device(host, device, kSize, stream), 0);
  ASSERT_EQ(write_value(stream, words, 1), 0);
  ASSERT_EQ(cu("cuStreamDestroy_v2", stream), 0);
  EXPECT_EQ(cu("cuStreamQuery", stream), kInvalidHandle);
  EXPECT_TRUE(comes(words, 1));
}

TEST_F(Streams, EventsTellAPlaceInAStream) {
  Stream stream = make_stream(), other = make_stream();
  void* event = nullptr;
  ASSERT_EQ(cu("cuEventCreate", &event, 2), 0);
  EXPECT_EQ(cu("cuEventQuery", event), 0);  // never recorded
  ASSERT_TRUE(fake().plan("hang:2"));
  ASSERT_EQ(out_of_device(host, device, kSize, stream), 0);
  ASSERT_EQ(cu("cuEventRecord", event, stream), 0);
  ASSERT_EQ(out_of_device(host, device, kSize, stream), 0);
  EXPECT_EQ(cu("cuEventSynchronize", event), 0);
  ASSERT_EQ(cu("cuEventRecord", event, stream), 0);
  EXPECT_EQ(cu("cuEventQuery", event), kNotReady);
  ASSERT_EQ(cu("cuStreamWaitEvent", other, event, 0), 0);
  ASSERT_EQ(write_value(other, words, 3), 0);
  ::usleep(5000);
  EXPECT_EQ(seen(words), 0u);
  fake().release();
  EXPECT_TRUE(comes(words, 3));
  EXPECT_EQ(cu("cuEventQuery", event), 0);
}

TEST_F(Streams, AStreamWaitsForAValue) {
  Stream stream = make_stream();
  ASSERT_EQ(cu("cuStreamWaitValue32_v2", stream, reinterpret_cast<uint64_t>(words), 5, 0), 0);
  ASSERT_EQ(write_value(stream, words + 4, 1), 0);
  std::atomic_ref word(*reinterpret_cast<uint32_t*>(words));
  word.store(4);
  ::usleep(3000);
  EXPECT_EQ(seen(words + 4), 0u);
  word.store(6, std::memory_order_release);
  EXPECT_TRUE(comes(words + 4, 1));
}

// Where the caller may have its memory back at once, the bytes were read before.
TEST_F(Streams, PageableMemoryIsReadBeforeTheCallReturns) {
  Stream stream = make_stream();
  std::vector<uint8_t> pageable(kSize, 1);
  ASSERT_TRUE(fake().plan("hang:1"));
  ASSERT_EQ(into_device(device, pageable.data(), kSize, stream), 0);
  std::fill(pageable.begin(), pageable.end(), 2);
  EXPECT_EQ(cu("cuStreamQuery", stream), kNotReady);
  fake().release();
  ASSERT_EQ(out_of_device(pageable.data(), device, kSize, stream), 0);
  EXPECT_EQ(cu("cuStreamQuery", stream), 0);
  EXPECT_EQ(pageable, std::vector<uint8_t>(kSize, 1));
}
// And pinned memory is not: what is there when the copy is made.
TEST_F(Streams, PinnedMemoryIsReadLater) {
  Stream stream = make_stream();
  host[0] = 1;
  ASSERT_EQ(cu("cuStreamWaitValue32_v2", stream, reinterpret_cast<uint64_t>(words), 5, 0), 0);
  ASSERT_EQ(into_device(device, host, 1, stream), 0);
  host[0] = 2;
  std::atomic_ref(*reinterpret_cast<uint32_t*>(words)).store(5, std::memory_order_release);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(*fake().host_view(device), 2);
}

// Streams that are not non-blocking wait for the legacy one, which waits for them.
TEST_F(Streams, TheLegacyStreamOrdersBlockingOnes) {
  Stream blocking = make_stream(0), later = make_stream(0), free = make_stream(1);
  ASSERT_TRUE(fake().plan("hang:1"));
  ASSERT_EQ(out_of_device(host, device, kSize, blocking), 0);
  ASSERT_EQ(write_value(nullptr, words, 1), 0);
  ASSERT_EQ(write_value(later, words + 4, 1), 0);
  ASSERT_EQ(write_value(free, words + 8, 1), 0);
  EXPECT_TRUE(comes(words + 8, 1));
  EXPECT_EQ(seen(words), 0u);
  EXPECT_EQ(seen(words + 4), 0u);
  fake().release();
  EXPECT_TRUE(comes(words, 1));
  EXPECT_TRUE(comes(words + 4, 1));
}

// A synchronous copy of a few bytes returns before they are there, unless the memory says
// otherwise.
TEST_F(Streams, SyncMemopsMakesSmallCopiesSynchronous) {
  const unsigned yes = 1;
  const std::vector<uint8_t> bytes(1000, 9);
  ASSERT_TRUE(fake().plan("copy_us:20000"));
  ASSERT_EQ(cu("cuMemcpyHtoD_v2", device, bytes.data(), bytes.size()), 0);
  EXPECT_NE(fake().pending(0), 0u);
  ASSERT_EQ(cu("cuPointerSetAttribute", &yes, 6, device), 0);
  ASSERT_EQ(cu("cuMemcpyHtoD_v2", device, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(fake().pending(0), 0u);
  EXPECT_EQ(*fake().host_view(device), 9);
}

TEST_F(Streams, MemoryIsSet) {
  Stream stream = make_stream();
  ASSERT_EQ(cu("cuMemsetD8Async", device + 10, 0x5A, 100, stream), 0);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  std::vector<uint8_t> got(100);
  ASSERT_EQ(cu("cuMemcpyDtoH_v2", got.data(), device + 10, got.size()), 0);
  EXPECT_EQ(got, std::vector<uint8_t>(100, 0x5A));
}

}  // namespace
}  // namespace tcpx::test
