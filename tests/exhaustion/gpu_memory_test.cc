// Memory that cannot be had where GPU memory is registered, moved and let go of.
#include <gtest/gtest.h>

#include "../support/engines.h"
#include "../support/fake_cuda.h"
#include "child.h"
#include "failing.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kMoved = 100'000;
constexpr uint32_t kBoth = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;

Options small() {
  return loopback_options({{"deadline", std::to_string(patience(5'000).count()) + "ms"},
                           {"lanes", "2"},
                           {"io_threads", "2"},
                           {"gpu_staging", "1M"},
                           {"chunk_bytes", "32K"}});
}

// Two engines, memory of a GPU at one and of the host at the other.
struct Ends {
  Local gpu, host;  // declared first: outlive the engines
  Engine a = make_engine(small()), b = make_engine(small());
  tcpx_peer b_at_a = 0;
  tcpx_remote_region theirs{};

  Ends() { host = make_local(b, kMoved, kBoth, 2, "host"), theirs = describe(b, host.region); }
  void meet() {
    TCPX_HOLDS(a.connect(b.connection_info(), &b_at_a).ok());
    TCPX_HOLDS(a.peer_wait(b_at_a, kLong).ok());
  }
  tcpx_code move(tcpx_op op, bool scattered) {
    std::vector<tcpx_local_piece> mine;
    std::vector<tcpx_remote_piece> others;
    const uint64_t length = scattered ? 500 : kMoved, step = scattered ? 1000 : kMoved;
    for (uint64_t at = 0; at < kMoved; at += step) {
      mine.push_back({gpu.region, at, length});
      others.push_back({&theirs, at, length});
    }
    Transfer transfer;
    Result result = a.prepare(b_at_a, op, mine, others, &transfer);
    if (result) result = transfer.post();
    if (result) result = transfer.wait(kLong);
    return result.code();
  }
  // Out of the GPU's memory and back into it; the first that does not end well.
  tcpx_code there_and_back(uint64_t number) {
    for (bool scattered : {false, true}) {
      fill(*gpu.memory, 0, kMoved, Pattern(1, number), 0);
      if (tcpx_code code = move(TCPX_WRITE, scattered); code != TCPX_OK) return code;
      fill(*gpu.memory, 0, kMoved, Pattern(3, number), 0);
      if (tcpx_code code = move(TCPX_READ, scattered); code != TCPX_OK) return code;
      const uint64_t length = scattered ? 500 : kMoved, step = scattered ? 1000 : kMoved;
      for (uint64_t at = 0; at < kMoved; at += step)
        if (mismatch(*gpu.memory, at, length, Pattern(1, number), at) >= 0)
          TCPX_COMPLAIN("round {}: done, and the bytes are wrong", number);
    }
    return TCPX_OK;
  }
};

// One allocation fails per round, of whatever library thread makes it from the moment when a GPU is
// opened. It may cost the session; the GPU works on, for the same engine.
TCPX_CHILD(gpu_threads) {
  exempt_this_thread();
  (void)cuda();
  bool failed = true;
  uint64_t number = 1;
  for (; failed && complaints() == 0; ++number) {
    Ends ends;
    ends.meet();
    fail_on_library_threads(static_cast<int64_t>(number));
    ends.gpu.memory = std::make_unique<DeviceMemory>(kMoved);
    tcpx_code code =
        ends.a.register_memory(ends.gpu.memory->address(), kMoved, 0, &ends.gpu.region).code();
    if (code == TCPX_OK) code = ends.there_and_back(number);
    failed = stop_failing();
    if (!failed && code != TCPX_OK)
      TCPX_COMPLAIN("round {}: {} without a fault", number, tcpx_code_name(code));
    if (ends.gpu.region == 0)
      TCPX_HOLDS(
          ends.a.register_memory(ends.gpu.memory->address(), kMoved, 0, &ends.gpu.region).ok());
    if (ends.a.peer_wait(ends.b_at_a, Ms{0}).code() != TCPX_OK) ends.meet();
    code = ends.there_and_back(number + 1'000'000);
    if (code != TCPX_OK)
      TCPX_COMPLAIN("round {}: {} for the GPU afterwards", number, tcpx_code_name(code));
  }
  std::fprintf(stderr, "%d allocations failed\n", int(number) - 2);
  TCPX_HOLDS(number > 20);
  return complaints();
}

// The same on the caller's thread: an answer, and nothing of it is left when the engine has gone.
TCPX_CHILD(gpu_callers) {
  exempt_this_thread();
  (void)cuda();
  const uint64_t pinned = fake_cuda()->host_bytes();
  const int streams = fake_cuda()->streams_open();
  bool failed = true;
  for (int64_t n = 1; failed && complaints() == 0; ++n) {
    {
      DeviceMemory memory(kMoved);
      Engine engine = make_engine(small());
      tcpx_region region = 0;
      fail_on_this_thread(n);
      tcpx_code code = engine.register_memory(memory.address(), kMoved, 0, &region).code();
      failed = stop_failing();
      if (code != TCPX_OK && (!failed || code != TCPX_NO_MEMORY))
        TCPX_COMPLAIN("allocation {}: {}", n, tcpx_code_name(code));
      if (code != TCPX_OK)
        TCPX_HOLDS(engine.register_memory(memory.address(), kMoved, 0, &region).ok());
    }
    if (fake_cuda()->host_bytes() != pinned || fake_cuda()->streams_open() > streams + 1)
      TCPX_COMPLAIN("allocation {}: {} pinned bytes and {} streams are left", n,
                    fake_cuda()->host_bytes() - pinned, fake_cuda()->streams_open() - streams);
  }
  return complaints();
}

// A fence that has no memory has done nothing, or goes on when it is called again. While a peer
// writes.
TCPX_CHILD(region_fences) {
  exempt_this_thread();
  Engine a = make_engine(small()), b = make_engine(small());
  Local mine = make_local(a, kMoved, 0, 1, "host");
  tcpx_peer b_at_a = 0;
  // What a lane lacks on this thread ends its session.
  auto meet = [&] {
    if (b_at_a != 0 && a.peer_wait(b_at_a, kLong).ok()) return;
    TCPX_HOLDS(a.connect(b.connection_info(), &b_at_a).ok());
    TCPX_HOLDS(a.peer_wait(b_at_a, kLong).ok());
  };
  meet();
  Local local = make_local(b, kMoved, kBoth, 2, "host");
  tcpx_remote_region theirs = describe(b, local.region);
  auto write_once = [&] {
    Transfer transfer;
    Result result = a.prepare(b_at_a, TCPX_WRITE, {{mine.region, 0, kMoved}},
                              {{&theirs, 0, kMoved}}, &transfer);
    if (result) result = transfer.post();
    return result ? transfer.wait(kLong).code() : result.code();
  };
  auto write = [&] {
    meet();
    tcpx_code code = write_once();
    if (code == TCPX_OK || code == TCPX_STALE_REGION) return code;
    b_at_a = 0;  // we had not heard of the session's end
    meet();
    return write_once();
  };
  // Each allocation of the call in turn: it succeeds then, or the next time.
  auto each = [&](const char* what, auto&& call, auto&& before, auto&& after) {
    bool failed = true;
    for (int64_t n = 1; failed && complaints() == 0; ++n) {
      before();
      fail_on_this_thread(n);
      tcpx_code code = call();
      failed = stop_failing();
      if (code != TCPX_OK && (!failed || code != TCPX_NO_MEMORY))
        TCPX_COMPLAIN("{}, allocation {}: {}", what, n, tcpx_code_name(code));
      if (code != TCPX_OK)
        if (tcpx_code again = call(); again != TCPX_OK)
          TCPX_COMPLAIN("{}, allocation {}: called again: {}", what, n, tcpx_code_name(again));
      after(n);
    }
  };
  auto nothing = [] {};
  auto refused = [&](int64_t n) {
    if (tcpx_code code = write(); code != TCPX_STALE_REGION)
      TCPX_COMPLAIN("allocation {}: a WRITE afterwards: {}", n, tcpx_code_name(code));
  };
  auto served = [&](int64_t n) {
    if (tcpx_code code = write(); code != TCPX_OK)
      TCPX_COMPLAIN("allocation {}: a WRITE after the resume: {}", n, tcpx_code_name(code));
  };
  each(
      "suspend", [&] { return b.suspend(local.region).code(); }, nothing,
      [&](int64_t n) {
        refused(n);
        TCPX_HOLDS(b.resume(local.region).ok());
      });
  each(
      "resume", [&] { return b.resume(local.region).code(); },
      [&] { TCPX_HOLDS(b.suspend(local.region).ok()); }, served);
  each(
      "deregister", [&] { return b.deregister(local.region).code(); }, nothing,
      [&](int64_t n) {
        refused(n);
        local = make_local(b, kMoved, kBoth, 2, "host");
        theirs = describe(b, local.region);
      });
  return complaints();
}

TEST(NoMemory, OfAGpuOnALibraryThreadLeavesTheGpuUsable) {
  if (kSanitized) GTEST_SKIP() << "under a sanitizer the driver's memory is not told from ours";
  EXPECT_EQ(run_child("gpu_threads", patience(60'000)), "");
}

TEST(NoMemory, OfAGpuOnACallersThreadLeavesNothingBehind) {
  EXPECT_EQ(run_child("gpu_callers", patience(60'000)), "");
}

TEST(NoMemory, FencesOfRegionsHaveDoneNothingOrGoOn) {
  EXPECT_EQ(run_child("region_fences", patience(60'000)), "");
}

}  // namespace
}  // namespace tcpx::test
