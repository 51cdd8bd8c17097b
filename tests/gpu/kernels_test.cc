// The kernels on a GPU, beside the CPU: any sizes, any alignment, many pieces; guard bytes around
// every piece. Without a GPU (TCPX_TEST_CUDA is not real) they are skipped: on the fake driver it
// is the CPU that would be compared with itself.
#include <gtest/gtest.h>

#include <random>

#include "gpu/kernels/image.h"
#include "gpu/kernels/pieces.h"
#include "support/fake_cuda.h"

namespace tcpx::test {
namespace {

using gpu::Pieces;

constexpr uint64_t kGap = 64;
constexpr uint8_t kPoison = 0xA5;

// Pieces at random places of device memory, and a slot in pinned memory.
class Kernels : public ::testing::Test {
 protected:
  using Module = struct ModuleTag*;
  using Function = struct FunctionTag*;

  void SetUp() override {
    const char* which = std::getenv("TCPX_TEST_CUDA");
    if (which == nullptr || std::string(which) != "real") GTEST_SKIP() << "needs a GPU";
    ASSERT_NE(gpu::kernel_image(), nullptr) << "built without nvcc";
    (void)cuda_device(0);
    CudaScope scope(0);
    auto load = cuda().function<int(Module*, const void*)>("cuModuleLoadData");
    auto find = cuda().function<int(Function*, Module, const char*)>("cuModuleGetFunction");
    auto pin = cuda().function<int(void**, size_t, unsigned)>("cuMemHostAlloc");
    cuda().check(load(&module_, gpu::kernel_image()), "cuModuleLoadData");
    cuda().check(find(&gather_, module_, "tcpx_gather"), "tcpx_gather");
    cuda().check(find(&scatter_, module_, "tcpx_scatter"), "tcpx_scatter");
    cuda().check(pin(reinterpret_cast<void**>(&slot_), kSlot, 3), "cuMemHostAlloc");
  }
  void TearDown() override {
    if (slot_ == nullptr) return;
    CudaScope scope(0);
    cuda().check(cuda().function<int(void*)>("cuMemFreeHost")(slot_), "cuMemFreeHost");
    cuda().check(cuda().function<int(Module)>("cuModuleUnload")(module_), "cuModuleUnload");
  }

  void launch(Function kernel, Pieces& pieces, unsigned blocks) {
    CudaScope scope(0);
    auto start =
        cuda()
            .function<int(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, Cuda::Stream, void**, void**)>("cuLaunchKernel");
    void* parameters[] = {&pieces};
    cuda().check(start(kernel, blocks, 1, 1, gpu::kThreadsPerBlock, 1, 1, 0, cuda_device(0).stream,
                       parameters, nullptr),
                 "cuLaunchKernel");
    cuda().check(cuda().stream_synchronize(cuda_device(0).stream), "the kernel");
  }

  // As begin_out and begin_in of the mover cut them: several launches where one does not take all.
  void check(const std::vector<uint32_t>& sizes, const std::vector<uint32_t>& skews,
             unsigned blocks) {
    uint64_t room = kGap, bytes = 0;
    std::vector<uint64_t> at;
    for (size_t i = 0; i < sizes.size(); ++i) {
      at.push_back(room + skews[i]);
      room += (skews[i] + sizes[i] + 2 * kGap) / kGap * kGap;
      bytes += sizes[i];
    }
    ASSERT_LE(bytes, kSlot);
    DeviceMemory memory(room + kGap);
    std::vector<uint8_t> image(memory.size(), kPoison), data(bytes);
    Pattern(bytes, blocks).fill(data.data(), bytes, 0);
    auto each = [&](auto&& f) {
      uint64_t offset = 0;
      for (size_t i = 0; i < sizes.size(); offset += sizes[i++]) f(i, offset);
    };
    auto run = [&](Function kernel) {
      Pieces pieces;
      pieces.slot = reinterpret_cast<uint64_t>(slot_);
      pieces.count = 0;
      each([&](size_t i, uint64_t offset) {
        pieces.piece[pieces.count++] = {memory.device_address() + at[i],
                                        static_cast<uint32_t>(offset), sizes[i]};
        pieces.bytes = static_cast<uint32_t>(offset) + sizes[i];
        if (pieces.count < Pieces::kMost && i + 1 < sizes.size()) return;
        launch(kernel, pieces, blocks);
        pieces.count = 0;
      });
    };
    // Out of the slot into the pieces, and nothing beside them.
    memory.store(0, image.data(), image.size());
    std::memset(slot_, kPoison, kSlot);
    std::memcpy(slot_, data.data(), bytes);
    run(scatter_);
    each([&](size_t i, uint64_t offset) {
      std::memcpy(image.data() + at[i], data.data() + offset, sizes[i]);
    });
    std::vector<uint8_t> seen(memory.size());
    memory.load(0, seen.data(), seen.size());
    ASSERT_EQ(first_difference(seen, image), -1) << "scatter, " << describe(sizes, skews);
    EXPECT_EQ(memory.damage(), "");
    // And back.
    std::memset(slot_, kPoison, kSlot);
    run(gather_);
    ASSERT_EQ(std::memcmp(slot_, data.data(), bytes), 0) << "gather, " << describe(sizes, skews);
    for (uint64_t i = bytes; i < kSlot; ++i)
      ASSERT_EQ(slot_[i], kPoison) << "behind the slot, " << i;
  }
  static int64_t first_difference(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
    for (size_t i = 0; i < a.size(); ++i)
      if (a[i] != b[i]) return static_cast<int64_t>(i);
    return -1;
  }
  static std::string describe(const std::vector<uint32_t>& sizes,
                              const std::vector<uint32_t>& skews) {
    return std::to_string(sizes.size()) + " pieces, the first of " + std::to_string(sizes[0]) +
           " bytes at skew " + std::to_string(skews[0]);
  }

  static constexpr uint64_t kSlot = 1 << 20;
  Module module_ = nullptr;
  Function gather_ = nullptr, scatter_ = nullptr;
  uint8_t* slot_ = nullptr;
};

TEST_F(Kernels, OnePieceOfEverySmallSizeAtEverySkew) {
  for (uint32_t size = 1; size <= 70; ++size)
    for (uint32_t skew : {0u, 1u, 2u, 3u, 4u, 7u, 8u, 9u, 15u, 16u})
      check({size, 33, size}, {skew, 0, 16 - skew}, 1);
}

TEST_F(Kernels, PagesAndOddPieces) {
  for (uint32_t size : {4095u, 4096u, 4097u, 8192u, 16384u, 45000u, 65536u, 100003u})
    for (uint32_t skew : {0u, 1u, 8u})
      for (unsigned blocks : {1u, 2u, 7u}) check({size, size, size / 2 + 1}, {skew, 0, 3}, blocks);
}

TEST_F(Kernels, MorePiecesThanOneLaunchTakes) {
  std::vector<uint32_t> sizes(3 * Pieces::kMost + 5, 700), skews(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] += static_cast<uint32_t>(i % 3);
    skews[i] = static_cast<uint32_t>(i % 17);
  }
  check(sizes, skews, 2);
}

TEST_F(Kernels, RandomPieces) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<uint32_t> sizes, skews;
    const uint32_t largest = 1u << (random() % 16 + 1);
    uint64_t bytes = 0;
    while (sizes.size() < 1 + random() % 300) {
      const uint32_t size = 1 + random() % largest;
      if (bytes + size > kSlot) break;
      bytes += size;
      sizes.push_back(size);
      skews.push_back(random() % 32);
    }
    check(sizes, skews, 1 + random() % 8);
  }
}

}  // namespace
}  // namespace tcpx::test
