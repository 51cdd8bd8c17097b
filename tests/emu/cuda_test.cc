// The emulator with GPU memory, on a driver of our own that has no GPU behind it: the CPU never
// touches device memory, copies are awaited, nothing is allocated in the data path.
#include <dlfcn.h>

#include <cstring>

#include "fake_cuda/fake_cuda.h"
#include "plugin.h"

namespace tcpx::test {
namespace {

// Loaded before the emulator looks for libcuda.so.1: it then gets this one. The emulator looks only
// once, so this runs in a child.
const FakeCuda& driver() {
  static void* library = ::dlopen(TCPX_TEST_FAKE_CUDA_PATH, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) std::abort();
  return *static_cast<const FakeCuda*>(::dlsym(library, "fakeCuda"));
}

void messages(const Pair& pair) {
  constexpr int kSize = 100'001;
  uint64_t source = driver().allocate(131072), target = driver().allocate(131072);
  Registered from(pair.send, reinterpret_cast<void*>(source), 131072);
  Registered to(pair.receive, reinterpret_cast<void*>(target), 131072);
  nccl::UnpackHandle handle;
  std::memcpy(&handle, driver().host_view(reinterpret_cast<uint64_t>(pair.description.handle)),
              sizeof handle);
  EXPECT_EQ(handle.head, ~0ull);
  int allocations = driver().host_allocations(), streams = driver().streams_open();
  for (uint64_t k = 0; k < 40; ++k) {
    Pattern(9, k).fill(driver().host_view(source), kSize, 0);
    void* receive = irecv(pair, reinterpret_cast<void*>(target), 131072, to);
    finish_both(isend(pair, reinterpret_cast<void*>(source), kSize, from), receive);
    std::vector<uint8_t> got(kSize, 0xCD);
    size_t slot = k % 16;
    for (uint64_t i = 0; i < handle.meta->count[slot]; ++i) {
      const nccl::Fragment& f = handle.meta->fragments[slot][i];
      std::memcpy(&got[f.destination], static_cast<uint8_t*>(handle.bounce) + f.source, f.length);
    }
    ASSERT_EQ(Pattern(9, k).mismatch(got.data(), kSize, 0), -1) << k;
    ASSERT_EQ(consume(pair, receive), 0);
  }
  EXPECT_EQ(driver().host_allocations(), allocations);
  EXPECT_EQ(driver().streams_open(), streams);
}

int with_fake_gpu(const std::function<void()>& body) {
  return in_child([&] {
    driver();
    Environment env({{"TCPX_EMU_DEVICE", "cuda"},
                     {"NCCL_NSOCKS_PERTHREAD", "2"},
                     {"NCCL_DYNAMIC_CHUNK_SIZE", "131072"},
                     {"TCPX_EMU_POOL_MB", "4"}});
    EXPECT_EQ(env.init_result, 0) << PluginLog::all();
    EXPECT_EQ(extras().device_is_host(), 0);
    body();
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
}

TEST(Cuda, BytesOfDeviceMemoryArrive) {
  EXPECT_EQ(with_fake_gpu([] {
              int before = driver().copies();
              {
                Pair pair;
                messages(pair);
              }
              EXPECT_EQ(driver().copies() - before, 40);
              EXPECT_EQ(driver().streams_open(), 0);
              EXPECT_EQ(driver().events_open(), 0);
              // The next comm uses what the last one left: freeing and allocating wait for kernels.
              int allocations = driver().host_allocations();
              Pair pair;
              messages(pair);
              EXPECT_EQ(driver().host_allocations(), allocations);
            }),
            0);
}

TEST(Cuda, HostMemoryIsSentAsItIs) {
  EXPECT_EQ(with_fake_gpu([] {
              Pair pair;
              Pages source(4096), target(4096);
              Registered from(pair.send, source, nccl::kPtrHost),
                  to(pair.receive, target, nccl::kPtrHost);
              Pattern(1).fill(source.data(), 4096, 0);
              int before = driver().copies();
              void* receive = irecv(pair, target.data(), 4096, to);
              finish_both(isend(pair, source.data(), 4096, from), receive);
              EXPECT_EQ(Pattern(1).mismatch(target.data(), 4096, 0), -1);
              EXPECT_EQ(driver().copies(), before);
              EXPECT_EQ(consume(pair, receive), 0);
            }),
            0);
}

TEST(Cuda, EveryGpuHasItsPool) {
  EXPECT_EQ(with_fake_gpu([] {
              auto bounce = [](const Pair& pair) {
                nccl::UnpackHandle handle;
                std::memcpy(&handle,
                            driver().host_view(reinterpret_cast<uint64_t>(pair.description.handle)),
                            sizeof handle);
                return handle.bounce;
              };
              Pair none;
              driver().set_current(0);
              Pair first;
              driver().set_current(1);
              Pair second;
              EXPECT_EQ(bounce(none), bounce(first));
              EXPECT_NE(bounce(first), bounce(second));
            }),
            0);
}

TEST(Cuda, PlainPluginOffersHostMemoryOnly) {
  EXPECT_EQ(with_fake_gpu([] {
              Environment env({{"TCPX_EMU_DEVICE", "cuda"}, {"TCPX_EMU_TYPE", "host"}});
              nccl::PropertiesV7 p;
              EXPECT_EQ(plugin().get_properties(0, &p), 0);
              EXPECT_EQ(p.ptr_support, nccl::kPtrHost);
            }),
            0);
}

}  // namespace
}  // namespace tcpx::test
