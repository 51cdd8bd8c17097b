// What goes wrong when a test says so.
#include "fixture.h"

namespace tcpx::test {
namespace {

using Plan = FakeDriver;

TEST_F(Plan, TheNthCallFails) {
  ASSERT_TRUE(fake().plan("fail:cuMemAlloc_v2@2=2;fail:cuStreamCreate@3+=999"));
  uint64_t address = 0;
  EXPECT_EQ(cu("cuMemAlloc_v2", &address, 100), 0);
  EXPECT_EQ(cu("cuMemAlloc_v2", &address, 100), kOutOfMemory);
  EXPECT_EQ(cu("cuMemAlloc_v2", &address, 100), 0);
  void* stream = nullptr;
  for (int i = 1; i < 6; ++i) EXPECT_EQ(cu("cuStreamCreate", &stream, 1), i < 3 ? 0 : 999);
  fake().clear_plan();
  EXPECT_EQ(cu("cuStreamCreate", &stream, 1), 0);
}

TEST_F(Plan, ACallThatFailsDoesNothing) {
  uint8_t* words = pinned(64);
  Stream stream = make_stream();
  ASSERT_TRUE(fake().plan("fail:cuStreamWriteValue32_v2@*=1"));
  EXPECT_EQ(write_value(stream, words, 1), 1);
  EXPECT_EQ(cu("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(seen(words), 0u);
}

// What was handed over and not done is never done.
TEST_F(Plan, ALostContextIsLostForAllCalls) {
  const uint64_t memory = device_memory(4096);
  uint8_t *host = pinned(4096), *words = pinned(64);
  Stream stream = make_stream();
  ASSERT_TRUE(fake().plan("hang:1;lose:cuStreamQuery@2=719"));
  ASSERT_EQ(out_of_device(host, memory, 10, stream), 0);
  ASSERT_EQ(write_value(stream, words, 1), 0);
  EXPECT_EQ(cu("cuStreamQuery", stream), kNotReady);
  EXPECT_EQ(cu("cuStreamQuery", stream), kLaunchFailed);
  EXPECT_EQ(out_of_device(host, memory, 10, stream), kLaunchFailed);
  EXPECT_EQ(cu("cuCtxSynchronize"), kLaunchFailed);
  fake().release();
  ::usleep(5000);
  EXPECT_EQ(seen(words), 0u);
  EXPECT_EQ(fake().pending(0), 0u) << "it was dropped";
  DeviceMemory in_another_context(100);
  EXPECT_EQ(in_another_context.damage(), "");
}

TEST_F(Plan, OneDevicesContextIsLost) {
  DeviceMemory zero(100, 0), one(100, 1);
  fake().lose_context(1, kLaunchFailed);
  EXPECT_THROW(one.store(0, "x", 1), std::runtime_error);
  EXPECT_NO_THROW(zero.store(0, "x", 1));
  // Whoever retains it after a reset has a new one.
  void* fresh = nullptr;
  EXPECT_EQ(cu("cuDevicePrimaryCtxReset_v2", 1), 0);
  EXPECT_THROW(one.store(0, "x", 1), std::runtime_error);
  forget_cuda_device(1);
  EXPECT_EQ(cu("cuDevicePrimaryCtxRetain", &fresh, 1), 0);
  ASSERT_EQ(cu("cuCtxPushCurrent_v2", fresh), 0);
  EXPECT_EQ(cu("cuCtxSynchronize"), 0);
  EXPECT_EQ(cu("cuCtxPopCurrent_v2", &fresh), 0);
}

TEST_F(Plan, CopiesAreSlow) {
  const uint64_t memory = device_memory(4096);
  uint8_t* host = pinned(4096);
  Stream stream = make_stream();
  ASSERT_TRUE(fake().plan("copy_us:10000"));
  EXPECT_GE(milliseconds_of([&] {
              for (int i = 0; i < 3; ++i) ASSERT_EQ(out_of_device(host, memory, 10, stream), 0);
              ASSERT_EQ(cu("cuStreamSynchronize", stream), 0);
            }),
            30);
}

TEST_F(Plan, AnotherThreadHasTheDriversLock) {
  Stream stream = make_stream();
  fake().hold_driver_lock(50);
  EXPECT_GE(milliseconds_of([&] { EXPECT_EQ(cu("cuStreamQuery", stream), 0); }), 40);
  EXPECT_LT(milliseconds_of([&] { EXPECT_EQ(cu("cuStreamQuery", stream), 0); }), 40);
  ASSERT_TRUE(fake().plan("lock:cuStreamQuery@1=50"));
  EXPECT_GE(milliseconds_of([&] { EXPECT_EQ(cu("cuStreamQuery", stream), 0); }), 40);
}

TEST_F(Plan, WhatIsNotUnderstoodIsSaid) {
  EXPECT_FALSE(fake().plan("no_such:1"));
  EXPECT_FALSE(fake().plan("fail:cuInit=1"));
  EXPECT_FALSE(fake().plan("fail:cuInit@0=1"));
  EXPECT_FALSE(fake().plan("hang:0"));
  EXPECT_FALSE(fake().plan("copy_us:many"));
  EXPECT_TRUE(fake().plan(""));
}

// A process that has just begun, as `testing::ExitedWithCode` finds it: the environment is read
// once.
struct OfAChild : testing::Test {
  void SetUp() override {
    // Without asking the driver: it would be there already when the child begins.
    if (wants_real_cuda()) GTEST_SKIP() << "about the fake";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};
int version_code() {
  int version = 0;
  return cu("cuDriverGetVersion", &version) == 99 ? 9 : 1;
}
TEST_F(OfAChild, ThePlanComesByEnvironment) {
  EXPECT_EXIT(::_exit(version_code()), testing::ExitedWithCode(1), "");
  ::setenv("FAKE_CUDA_PLAN", "fail:cuDriverGetVersion@*=99", 1);
  EXPECT_EXIT(::_exit(version_code()), testing::ExitedWithCode(9), "");
  ::setenv("FAKE_CUDA_PLAN", "nonsense", 1);
  EXPECT_DEATH(::_exit(version_code()), "no such plan: nonsense");
  ::unsetenv("FAKE_CUDA_PLAN");
}
TEST_F(OfAChild, TheNumberOfDevicesToo) {
  ::setenv("FAKE_CUDA_DEVICES", "4", 1);
  EXPECT_EXIT(::_exit(cuda().devices), testing::ExitedWithCode(4), "");
  ::unsetenv("FAKE_CUDA_DEVICES");
  EXPECT_EXIT(::_exit(cuda().devices), testing::ExitedWithCode(2), "");
}

}  // namespace
}  // namespace tcpx::test
