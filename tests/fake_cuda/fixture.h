// The fake driver called as a user of libcuda.so.1 would.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <concepts>
#include <thread>

#include "support/fake_cuda.h"

namespace tcpx::test {

inline constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                     kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500, kNotReady = 600,
                     kIllegalAddress = 700, kContextIsDestroyed = 709, kAlreadyRegistered = 712,
                     kNotRegistered = 713, kLaunchFailed = 719;

// Numbers are passed as whole registers: right for int, unsigned and size_t.
template <class T>
auto as_argument(T value) {
  if constexpr (std::integral<T>)
    return static_cast<int64_t>(value);
  else
    return value;
}
template <class... A>
int cu(const char* name, A... arguments) {
  auto* function = cuda().function<int(decltype(as_argument(arguments))...)>(name);
  return function(as_argument(arguments)...);
}

class FakeDriver : public testing::Test {
 protected:
  using Stream = void*;
  using Context = void*;

  void SetUp() override {
    if (fake_cuda() == nullptr) GTEST_SKIP() << "about the fake, and this is the real driver";
    fake().clear_plan();
    fake().release();
    ASSERT_EQ(cu("cuCtxCreate_v2", &context, 0, 0), 0);
    counts().reset_counters();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    fake().clear_plan();
    fake().release();
    EXPECT_EQ(cu("cuCtxDestroy_v2", context), 0);
    Context none = nullptr;
    EXPECT_EQ(cu("cuCtxGetCurrent", &none), 0);
    EXPECT_EQ(none, nullptr);
  }
  static const FakeCuda& fake() { return *fake_cuda(); }
  static const CudaCounts& counts() { return *cuda_counts(); }

  static Stream make_stream(unsigned flags = 1) {
    Stream stream = nullptr;
    EXPECT_EQ(cu("cuStreamCreate", &stream, flags), 0);
    return stream;
  }
  static uint64_t device_memory(size_t size) {
    uint64_t address = 0;
    EXPECT_EQ(cu("cuMemAlloc_v2", &address, size), 0);
    return address;
  }
  static uint8_t* pinned(size_t size) {
    void* memory = nullptr;
    EXPECT_EQ(cu("cuMemHostAlloc", &memory, size, 3), 0);
    return static_cast<uint8_t*>(memory);
  }
  static int out_of_device(void* to, uint64_t from, size_t size, Stream stream) {
    return cu("cuMemcpyDtoHAsync_v2", to, from, size, stream);
  }
  static int into_device(uint64_t to, const void* from, size_t size, Stream stream) {
    return cu("cuMemcpyHtoDAsync_v2", to, from, size, stream);
  }
  static int write_value(Stream stream, void* word, uint32_t value) {
    return cu("cuStreamWriteValue32_v2", stream, reinterpret_cast<uint64_t>(word), value, 0);
  }
  static uint32_t seen(const void* word) {
    return std::atomic_ref(*static_cast<uint32_t*>(const_cast<void*>(word)))
        .load(std::memory_order_acquire);
  }
  static bool comes(const void* word, uint32_t value) {
    for (int i = 0; i < 50'000; ++i, ::usleep(100))
      if (seen(word) == value) return true;
    return false;
  }

  Context context = nullptr;
};

inline int64_t milliseconds_of(auto work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(1);
}

}  // namespace tcpx::test
