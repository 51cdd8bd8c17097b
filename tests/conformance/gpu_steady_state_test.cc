// The steady state of GPU memory: only the thread of the GPU calls the driver, and it creates,
// allocates and waits for nothing. Counted by the fake driver, or on the way
// to a real one (TCPX_TEST_CUDA=counted).
#include <fstream>

#include "../support/fake_cuda.h"
#include "alloc_counter.h"
#include "fixture.h"

namespace tcpx::test {
namespace {

std::string name_of_thread(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

struct Shape {
  const char* name;
  uint64_t piece, pieces;  // each followed by a gap as long
  const char *kind_a, *kind_b;
};
void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.name;
}

class GpuSteadyState : public ::testing::TestWithParam<std::tuple<Shape, tcpx_op>> {};

TEST_P(GpuSteadyState, only_the_gpus_thread_calls_and_nothing_is_made) {
  if (kSanitized) GTEST_SKIP() << "sanitizers replace operator new";
  if (cuda_counts() == nullptr) GTEST_SKIP() << "nobody counts calls of this driver";
  auto [shape, op] = GetParam();
  const CudaCounts& counts = *cuda_counts();
  const int contexts = counts.contexts_made(1);
  const uint64_t length = 2 * shape.piece * shape.pieces;
  Pair pair(loopback_options({{"lanes", "3"}, {"io_threads", "2"}, {"chunk_bytes", "256K"}}));
  pair.memory_a = make_local(pair.a, length, 0, 1, shape.kind_a);
  pair.memory_b = make_local(pair.b, length, kReadWrite, 2, shape.kind_b);
  pair.remote_b = describe(pair.b, pair.memory_b.region);
  std::vector<tcpx_local_piece> local;
  std::vector<tcpx_remote_piece> remote;
  for (uint64_t i = 0; i < shape.pieces; ++i) {
    local.push_back({pair.memory_a.region, 2 * i * shape.piece, shape.piece});
    remote.push_back({&pair.remote_b, 2 * i * shape.piece, shape.piece});
  }
  Transfer transfer;
  ASSERT_TRUE(succeeded(pair.a.prepare(pair.b_at_a, op, local, remote, &transfer)));
  auto cycle = [&](int rounds) {
    for (int i = 0; i < rounds; ++i)
      if (tcpx_post(transfer.raw(), nullptr) != TCPX_OK ||
          tcpx_wait(transfer.raw(), 10'000) != TCPX_OK)
        return false;
    return true;
  };
  ASSERT_TRUE(cycle(400));
  // Room grows with what was ever under way at once: on a busy machine that comes late, but it
  // ends.
  uint64_t allocated = 1;
  for (int attempt = 0; attempt < 5 && allocated > 0; ++attempt) {
    counts.reset_counters();
    const uint64_t before = allocations();
    ASSERT_TRUE(cycle(200));
    allocated = allocations() - before;
  }
  CudaUse use{};
  counts.use(0, &use);
  EXPECT_EQ(allocated, 0u);
  EXPECT_GT(use.calls, 200u);
  EXPECT_EQ(use.allocations, 0u);
  EXPECT_EQ(use.creations, 0u);
  EXPECT_EQ(use.synchronizing, 0u);
  EXPECT_EQ(use.legacy_stream, 0u);
  EXPECT_EQ(use.host_functions, 0u);
  pid_t callers[64];
  const size_t count = counts.threads(callers, std::size(callers));
  size_t gpu_threads = 0;
  for (size_t i = 0; i < count; ++i) {
    CudaUse by{};
    counts.use(callers[i], &by);
    if (by.calls == 0) continue;
    char what[1000] = "";
    counts.describe(callers[i], what, sizeof what);
    EXPECT_EQ(name_of_thread(callers[i]), "tcpx-cuda0") << what;
    ++gpu_threads;
  }
  EXPECT_EQ(counts.contexts_made(1), contexts) << "of a GPU that nobody registered memory of";
  EXPECT_EQ(gpu_threads, size_t{1} + (shape.kind_a == std::string(shape.kind_b)));
}

INSTANTIATE_TEST_SUITE_P(
    TcpCuda, GpuSteadyState,
    ::testing::Combine(::testing::Values(Shape{"small", 4096, 1, "cuda", "cuda"},
                                         Shape{"large", 1 << 20, 1, "cuda", "cuda"},
                                         Shape{"scattered", 4096, 200, "cuda", "cuda"},
                                         Shape{"few_pieces", 70'001, 3, "cuda", "host"},
                                         Shape{"from_host", 4096, 100, "host", "cuda"}),
                       ::testing::Values(TCPX_WRITE, TCPX_READ)),
    [](const auto& each) {
      return std::string(std::get<0>(each.param).name) + "_" + op_name(std::get<1>(each.param));
    });

}  // namespace
}  // namespace tcpx::test
