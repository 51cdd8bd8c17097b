// The driver that counts calls, before the fake one: what a test sees on a GPU is what happened.
#include <dlfcn.h>

#include "fixture.h"

namespace tcpx::test {
namespace {

class CountingDriver : public FakeDriver {
 protected:
  void SetUp() override {
    FakeDriver::SetUp();
    if (IsSkipped()) return;
    ::setenv("TCPX_TEST_COUNTED_CUDA", TCPX_TEST_FAKE_CUDA_PATH, 1);
    library_ = ::dlopen(TCPX_TEST_COUNTING_CUDA_PATH, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
    counted_ = static_cast<const CudaCounts*>(::dlsym(library_, "countedCuda"));
    ASSERT_NE(counted_, nullptr);
    counted_->reset_counters();
  }
  // As cu(), through the counting driver.
  template <class... A>
  int through(const char* name, A... arguments) {
    using F = int(decltype(as_argument(arguments))...);
    return reinterpret_cast<F*>(::dlsym(library_, name))(as_argument(arguments)...);
  }

  void* library_ = nullptr;
  const CudaCounts* counted_ = nullptr;
};

TEST_F(CountingDriver, HandsAllArgumentsOnAndCountsTheCall) {
  static std::atomic<uint64_t> seen{0};
  static const size_t sizes[] = {8};
  fake().register_kernel(
      "add",
      [](void** params, unsigned grid, unsigned block) {
        seen += *static_cast<uint64_t*>(params[0]) + grid + block;
      },
      sizes, 1);
  Stream stream = make_stream();
  void *module = nullptr, *function = nullptr;
  ASSERT_EQ(cu("cuModuleLoadData", &module, "image"), 0);
  ASSERT_EQ(cu("cuModuleGetFunction", &function, module, "add"), 0);
  uint64_t number = 1000;
  void* parameters[] = {&number};
  void** none = nullptr;
  // Eleven arguments: five of them on the stack.
  ASSERT_EQ(through("cuLaunchKernel", function, 20, 1, 1, 3, 1, 1, 0, stream,
                    static_cast<void**>(parameters), none),
            0);
  ASSERT_EQ(through("cuStreamSynchronize", stream), 0);
  EXPECT_EQ(seen.load(), 1023u);
  EXPECT_EQ(counted_->calls("cuLaunchKernel", 0), 1u);
  EXPECT_EQ(counted_->calls("cuStreamSynchronize", ::gettid()), 1u);
  EXPECT_EQ(cu("cuModuleUnload", module), 0);
}

TEST_F(CountingDriver, SaysWhatTheFakeSays) {
  Stream stream = make_stream();
  const uint64_t memory = device_memory(4096);
  uint8_t* host = pinned(4096);
  std::vector<uint8_t> pageable(10);
  counts().reset_counters();
  counted_->reset_counters();
  uint64_t more = 0;
  void *made = nullptr, *at_first = nullptr;
  auto nothing = static_cast<void (*)(void*)>([](void*) {});
  ASSERT_EQ(through("cuMemcpyDtoHAsync_v2", host, memory, 10, stream), 0);
  ASSERT_EQ(through("cuMemcpyDtoHAsync_v2", pageable.data(), memory, 10, stream), 0);
  ASSERT_EQ(through("cuMemcpyHtoDAsync_v2", memory, host, 10, stream), 0);
  ASSERT_EQ(through("cuStreamSynchronize", stream), 0);
  for (uintptr_t legacy : {0, 1, 2})
    ASSERT_EQ(through("cuStreamWriteValue32_v2", reinterpret_cast<void*>(legacy),
                      reinterpret_cast<uint64_t>(host), 1, 0),
              0);
  ASSERT_EQ(through("cuMemAlloc_v2", &more, 100), 0);
  ASSERT_EQ(through("cuStreamCreate", &made, 1), 0);
  ASSERT_EQ(through("cuLaunchHostFunc", stream, nothing, at_first), 0);
  CudaUse by_fake{}, by_counting{};
  counts().use(0, &by_fake);
  counted_->use(0, &by_counting);
  EXPECT_EQ(by_counting.calls, 10u);
  EXPECT_EQ(by_counting.allocations, by_fake.allocations);
  EXPECT_EQ(by_counting.creations, by_fake.creations);
  EXPECT_EQ(by_counting.synchronizing, by_fake.synchronizing);
  EXPECT_EQ(by_counting.legacy_stream, by_fake.legacy_stream);
  EXPECT_EQ(by_counting.host_functions, by_fake.host_functions);
  EXPECT_GT(by_fake.synchronizing, 1u) << "the copy to pageable memory too";
}

TEST_F(CountingDriver, ContextsAndCallsAside) {
  const int before = counted_->contexts_made(1);
  void* retained = nullptr;
  ASSERT_EQ(through("cuDevicePrimaryCtxRetain", &retained, 1), 0);
  EXPECT_EQ(counted_->contexts_made(1), before + 1);
  EXPECT_FALSE(counted_->set_aside(true));
  ASSERT_EQ(through("cuDevicePrimaryCtxRelease_v2", 1), 0);
  EXPECT_TRUE(counted_->set_aside(false));
  CudaUse use{};
  counted_->use(0, &use);
  EXPECT_EQ(use.calls, 1u);
}

}  // namespace
}  // namespace tcpx::test
