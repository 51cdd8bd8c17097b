// What a profiler sees of transfers of GPU memory: through NVTX's own way into a process, with a
// tool of ours (recorder.h) in the place of Nsight Systems.
#include "recorder.h"

#include <dlfcn.h>

#include <map>

#include "../support/engines.h"
#include "../support/fake_cuda.h"
#include "gpu/kernels/image.h"

namespace tcpx::test {
namespace {

constexpr uint32_t kReadWrite = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;
constexpr uint64_t kChunk = 64 << 10, kChunks = 8, kBytes = kChunks * kChunk;

#if defined(TCPX_TEST_NVTX_RECORDER)
constexpr const char* kRecorder = TCPX_TEST_NVTX_RECORDER;
#else
constexpr const char* kRecorder = "";
#endif

class Ranges : public ::testing::Test {
 protected:
  void SetUp() override {
    if (*kRecorder == 0) GTEST_SKIP() << "built without NVTX's header (TCPX_NVTX)";
    if (fake_cuda() == nullptr) GTEST_SKIP() << "kernels of the fake driver are never late";
    order_operations();
    ::setenv("NVTX_INJECTION64_PATH", kRecorder, 1);  // before the first engine
  }
  static std::vector<RecordedRange> all() {
    void* tool = ::dlopen(kRecorder, RTLD_NOW | RTLD_NOLOAD);
    if (tool == nullptr) return {};
    auto* read = reinterpret_cast<decltype(&recorded_ranges)>(::dlsym(tool, "recorded_ranges"));
    std::vector<RecordedRange> out(read(nullptr, 0));
    if (!out.empty()) read(out.data(), out.size());
    return out;
  }
  // Of a transfer in so many pieces; b's memory is of this kind, a's a GPU's.
  std::vector<RecordedRange> of_transfer(tcpx_op op, const char* kind_a, const char* kind_b,
                                         uint64_t pieces) {
    Pair pair(loopback_options(
        {{"lanes", "1"}, {"chunk_bytes", std::to_string(kChunk)}, {"require_path", "tcp"}}));
    pair.memory_a = make_local(pair.a, 2 * kBytes, 0, 1, kind_a);
    pair.memory_b = make_local(pair.b, 2 * kBytes, kReadWrite, 2, kind_b);
    pair.remote_b = describe(pair.b, pair.memory_b.region);
    std::vector<tcpx_local_piece> local;
    std::vector<tcpx_remote_piece> remote;
    for (uint64_t i = 0; i < pieces; ++i) {
      const uint64_t length = kBytes / pieces, at = 2 * i * length;
      local.push_back({pair.memory_a.region, at, length});
      remote.push_back({&pair.remote_b, at, length});
    }
    Transfer transfer;
    EXPECT_TRUE(succeeded(pair.a.prepare(pair.b_at_a, op, local, remote, &transfer)));
    const size_t before = all().size();
    EXPECT_TRUE(succeeded(transfer.post()));
    EXPECT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    // A sender may learn a little later than its peer that a frame is out.
    std::vector<RecordedRange> ranges;
    EXPECT_TRUE(eventually([&] {
      ranges = all();
      ranges.erase(ranges.begin(), ranges.begin() + static_cast<ptrdiff_t>(before));
      return std::all_of(ranges.begin(), ranges.end(), [](auto& r) { return r.ended != 0; });
    })) << "a range that does not end";
    return ranges;
  }
  static size_t count(const std::vector<RecordedRange>& ranges, const std::string& name) {
    return static_cast<size_t>(std::count_if(ranges.begin(), ranges.end(),
                                             [&](auto& range) { return name == range.name; }));
  }
  // Chunk by chunk, and as many bytes as were moved.
  static void expect_each(const std::vector<RecordedRange>& ranges, const std::string& name) {
    EXPECT_EQ(count(ranges, name), kChunks) << name;
    for (const RecordedRange& range : ranges) {
      EXPECT_STREQ(range.domain, "tcpx");
      if (name == range.name) {
        EXPECT_EQ(range.bytes, kChunk) << name;
      }
    }
  }
  // As many of `later` have begun at any time as of `earlier` have ended.
  static void expect_order(const std::vector<RecordedRange>& ranges, const std::string& earlier,
                           const std::string& later) {
    std::map<uint64_t, int> events;
    for (const RecordedRange& range : ranges) {
      EXPECT_LT(range.begun, range.ended);
      if (earlier == range.name) events[range.ended] = 1;
      if (later == range.name) events[range.begun] = -1;
    }
    int ready = 0;
    for (auto [at, change] : events)
      ASSERT_GE(ready += change, 0) << later << " before " << earlier;
  }
};

TEST_F(Ranges, ShowEveryStageOfEveryChunk) {
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
    const auto ranges = of_transfer(op, "cuda", "cuda", 1);
    EXPECT_EQ(ranges.size(), 4 * kChunks);
    for (const char* name : {"copy out", "send", "receive", "copy in"}) expect_each(ranges, name);
    expect_order(ranges, "copy out", "send");
    expect_order(ranges, "receive", "copy in");
  }
}

TEST_F(Ranges, ShowKernelsByTheirNames) {
  if (tcpx::gpu::kernel_image() == nullptr) GTEST_SKIP() << "built without nvcc";
  const auto ranges = of_transfer(TCPX_WRITE, "cuda", "cuda", kBytes / 4096);
  // One that is late on a busy machine has copies in the place of the next.
  EXPECT_GE(count(ranges, "gather"), 1u);
  EXPECT_GE(count(ranges, "scatter"), 1u);
  EXPECT_EQ(count(ranges, "gather") + count(ranges, "copy out"), kChunks);
  EXPECT_EQ(count(ranges, "scatter") + count(ranges, "copy in"), kChunks);
  expect_each(ranges, "send");
  expect_each(ranges, "receive");
}

TEST_F(Ranges, ShowTheEndOfAGpuAlone) {
  const auto ranges = of_transfer(TCPX_WRITE, "host", "cuda", 1);
  EXPECT_EQ(ranges.size(), 2 * kChunks);
  expect_each(ranges, "receive");
  expect_each(ranges, "copy in");
}

TEST_F(Ranges, ShowNothingOfHostMemory) {
  EXPECT_TRUE(of_transfer(TCPX_READ, "host", "host", 1).empty());
}

}  // namespace
}  // namespace tcpx::test
