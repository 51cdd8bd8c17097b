// Who called what; and the contexts there are.
#include <sys/wait.h>

#include "fixture.h"

namespace tcpx::test {
namespace {

using Counters = FakeDriver;

TEST_F(Counters, CallsByFunctionAndThread) {
  Stream stream = make_stream();
  pid_t other = 0;
  std::thread([&] {
    other = ::gettid();
    EXPECT_EQ(cu("cuCtxPushCurrent_v2", context), 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(cu("cuStreamQuery", stream), 0);
  }).join();
  EXPECT_EQ(cu("cuStreamQuery", stream), 0);
  EXPECT_EQ(counts().calls("cuStreamQuery", 0), 4u);
  EXPECT_EQ(counts().calls("cuStreamQuery", other), 3u);
  EXPECT_EQ(counts().calls("cuNoSuchFunction", 0), 0u);
  EXPECT_EQ(counts().calls_by_other_threads_than(other), 2u);
  EXPECT_EQ(counts().calls_by_other_threads_than(::gettid()), 4u);
  pid_t threads[4] = {};
  EXPECT_EQ(counts().threads(threads, 4), 2u);
  char text[256];
  counts().describe(other, text, sizeof text);
  EXPECT_STREQ(text, "cuCtxPushCurrent_v2 1\ncuStreamQuery 3\n");
  counts().reset_counters();
  EXPECT_EQ(counts().calls_by_other_threads_than(0), 0u);
}

TEST_F(Counters, WhatADataPathMustNotDo) {
  Stream stream = make_stream();
  const uint64_t memory = device_memory(4096);
  uint8_t* host = pinned(4096);
  std::vector<uint8_t> pageable(10);
  counts().reset_counters();
  ASSERT_EQ(out_of_device(host, memory, 10, stream), 0);
  ASSERT_EQ(write_value(stream, host + 64, 1), 0);
  CudaUse use{};
  counts().use(0, &use);
  EXPECT_EQ(use.calls, 2u);
  EXPECT_EQ(
      use.allocations + use.creations + use.synchronizing + use.legacy_stream + use.host_functions,
      0u);
  ASSERT_EQ(out_of_device(pageable.data(), memory, 10, stream), 0);
  ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
  for (uintptr_t handle : {0, 1, 2})
    ASSERT_EQ(write_value(reinterpret_cast<void*>(handle), host, 1), 0);
  (void)device_memory(100);
  (void)make_stream();
  auto nothing = [](void*) {};
  ASSERT_EQ(cu("cuLaunchHostFunc", stream, static_cast<void (*)(void*)>(nothing),
               static_cast<void*>(nullptr)),
            0);
  counts().use(::gettid(), &use);
  EXPECT_EQ(use.allocations, 1u);
  EXPECT_EQ(use.creations, 1u);
  EXPECT_EQ(use.synchronizing, 2u);
  EXPECT_EQ(use.legacy_stream, 3u);
  EXPECT_EQ(use.host_functions, 1u);
  EXPECT_EQ(counts().legacy_stream_calls(), 3u);
}

TEST_F(Counters, ContextsOfADevice) {
  const int zero = counts().contexts_made(0), one = counts().contexts_made(1);
  void* other = nullptr;
  ASSERT_EQ(cu("cuCtxCreate_v2", &other, 0, 1), 0);
  ASSERT_EQ(cu("cuCtxDestroy_v2", other), 0);
  EXPECT_EQ(counts().contexts_made(0), zero);
  EXPECT_EQ(counts().contexts_made(1), one + 1);
}

TEST_F(Counters, APrimaryContextLivesAsLongAsItIsRetained) {
  unsigned flags = 0;
  int active = -1;
  void *first = nullptr, *second = nullptr;
  while (cu("cuDevicePrimaryCtxRelease_v2", 1) == 0) {
  }
  EXPECT_EQ(cu("cuDevicePrimaryCtxGetState", 1, &flags, &active), 0);
  EXPECT_EQ(active, 0);
  ASSERT_EQ(cu("cuDevicePrimaryCtxRetain", &first, 1), 0);
  ASSERT_EQ(cu("cuDevicePrimaryCtxRetain", &second, 1), 0);
  EXPECT_EQ(first, second);
  ASSERT_EQ(cu("cuCtxPushCurrent_v2", first), 0);
  ASSERT_EQ(cu("cuDevicePrimaryCtxRelease_v2", 1), 0);
  EXPECT_EQ(cu("cuCtxSynchronize"), 0);
  ASSERT_EQ(cu("cuDevicePrimaryCtxRelease_v2", 1), 0);
  EXPECT_EQ(cu("cuCtxSynchronize"), kContextIsDestroyed);
  EXPECT_EQ(cu("cuCtxPopCurrent_v2", &first), 0);
  forget_cuda_device(1);
}

// As with the real driver.
TEST_F(Counters, AForkedChildHasNoDriver) {
  const pid_t child = ::fork();
  if (child == 0) {
    void* none = nullptr;
    ::_exit(cu("cuInit", 0) == kNotInitialized && cu("cuCtxGetCurrent", &none) == kNotInitialized
                ? 0
                : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(Counters, DevicesSayWhatTheyAre) {
  char name[64] = {}, bus[32] = {}, uuid[2][16] = {};
  int value = 0;
  const char* text = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(cu("cuDeviceGetName", &name[0], 64, 1), 0);
  EXPECT_STREQ(name, "Fake GPU 1");
  EXPECT_EQ(cu("cuDeviceGetPCIBusId", &bus[0], 32, 1), 0);
  EXPECT_STREQ(bus, "0000:02:00.0");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cu("cuDeviceGetUuid_v2", &uuid[i][0], i), 0);
  EXPECT_NE(std::memcmp(uuid[0], uuid[1], 16), 0);
  EXPECT_EQ(cu("cuDeviceGetAttribute", &value, 75, 0), 0);
  EXPECT_EQ(value, 9);
  EXPECT_EQ(cu("cuDeviceTotalMem_v2", &bytes, 0), 0);
  EXPECT_EQ(bytes, size_t{80} << 30);
  EXPECT_EQ(cu("cuDeviceGet", &value, 2), 101);
  EXPECT_EQ(cu("cuGetErrorName", 700, &text), 0);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_EQ(cu("cuGetErrorString", 12345, &text), kInvalidValue);
}

}  // namespace
}  // namespace tcpx::test
