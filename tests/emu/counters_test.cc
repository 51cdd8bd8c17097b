// What the counters say, here and to another process.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "plugin.h"

namespace tcpx::test {
namespace {

void one_message(const Pair& pair, Pages& pages, int size) {
  Registered from(pair.send, pages), to(pair.receive, pages);
  void* receive = irecv(pair, pages.data(), 65536, to);
  finish_both(isend(pair, pages.data(), size, from), receive);
  EXPECT_EQ(consume(pair, receive), 0);
}

TEST(Counters, CountWhatHappened) {
  Environment env({{"TCPX_EMU_DEVICES", "4"}});
  tcpx_emu_counters before = counters(3), others = counters(2);
  Pages pages(65536);
  Pair pair(3);
  one_message(pair, pages, 10000);
  one_message(pair, pages, 0);
  tcpx_emu_counters after = counters(3);
  EXPECT_EQ(after.rx_devmem_pkts - before.rx_devmem_pkts, 3u);
  EXPECT_EQ(after.rx_devmem_bytes - before.rx_devmem_bytes, 10000u);
  EXPECT_EQ(after.tx_bytes - before.tx_bytes, 10000u);
  EXPECT_EQ(after.rx_host_bytes, before.rx_host_bytes);
  EXPECT_EQ(after.sends - before.sends, 2u);
  EXPECT_EQ(after.receives - before.receives, 2u);
  EXPECT_EQ(after.consumed - before.consumed, 2u);
  EXPECT_EQ(after.comms_open - before.comms_open, 2u);
  EXPECT_EQ(after.requests_live, before.requests_live);
  EXPECT_GE(after.requests_live_max, 2u);
  EXPECT_EQ(after.pool_pages, 64u * 256);
  EXPECT_LE(after.pool_pages_min_free, after.pool_pages - 3);
  EXPECT_EQ(
      std::memcmp(&others, &static_cast<const tcpx_emu_counters&>(counters(2)), sizeof others), 0);
  tcpx_emu_counters none;
  EXPECT_EQ(extras().counters(4, &none), nccl::kInvalidArgument);
  EXPECT_EQ(extras().counters(-1, &none), nccl::kInvalidArgument);
}

// Whether the thread did not test, or the machine did not run it.
TEST(Counters, ALateTestIsTheThreadsOwnIfItHadTheCore) {
  Environment env({{"TCPX_EMU_DEVICES", "6"}, {"TCPX_EMU_TEST_CPU", "1"}});
  Pages pages(4096);
  Pair pair(5);
  Registered from(pair.send, pages);
  extras().reset_maxima(5);
  // Under a sanitizer on a busy core going to sleep may itself take the 100 us; not every time.
  for (int tries = 0; tries < 20; ++tries) {
    void* sleeper = isend(pair, pages.data(), 10, from);
    std::this_thread::sleep_for(Ms{5});
    EXPECT_EQ(finish(sleeper), 0);
    EXPECT_GT(counters(5).late_tests, static_cast<uint64_t>(tries));
    if (counters(5).late_tests_own < counters(5).late_tests) break;
  }
  uint64_t own = counters(5).late_tests_own;
  EXPECT_LT(own, counters(5).late_tests) << "it slept";
  void* request = isend(pair, pages.data(), 10, from);
  timespec cpu;
  long long until = 0;
  do {
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    long long now = cpu.tv_sec * 1'000'000'000ll + cpu.tv_nsec;
    if (until == 0) until = now + 2'000'000;
    if (now >= until) break;
  } while (true);
  EXPECT_EQ(finish(request), 0);
  EXPECT_GT(counters(5).late_tests_own, own);
  extras().reset_maxima(5);
  EXPECT_EQ(counters(5).late_tests_own, 0u);
}

TEST(Counters, LongestTimeWithoutTest) {
  Environment env({{"TCPX_EMU_DEVICES", "6"}});
  Pages pages(4096);
  Pair pair(5);
  Registered from(pair.send, pages);
  extras().reset_maxima(5);
  std::this_thread::sleep_for(Ms{60});  // nothing to poll: no gap
  EXPECT_EQ(counters(5).max_test_gap_ns, 0u);
  void* request = isend(pair, pages.data(), 10, from);
  std::this_thread::sleep_for(Ms{60});
  EXPECT_EQ(finish(request), 0);
  EXPECT_GE(counters(5).max_test_gap_ns, 60'000'000u);
  EXPECT_GE(counters(5).late_tests, 1u);
  extras().reset_maxima(5);
  EXPECT_EQ(counters(5).max_test_gap_ns, 0u);
  EXPECT_EQ(counters(5).late_tests, 0u);
  EXPECT_EQ(counters(5).requests_live_max, 0u);
}

TEST(Counters, AnotherProcessReadsTheFile) {
  char name[] = "/tmp/tcpx_emu_test_XXXXXX";
  int unused = ::mkstemp(name);
  ASSERT_GE(unused, 0);
  ::close(unused);
  // In a child, since the counters stay in the file for good.
  int rc = in_child([&] {
    Environment env({{"TCPX_EMU_COUNTERS", std::string(name) + ".%p"}});
    Pages pages(65536);
    Pair pair;
    one_message(pair, pages, 10000);
    std::rename((std::string(name) + "." + std::to_string(::getpid())).c_str(), name);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(rc, 0);
  int fd = ::open(name, O_RDONLY);
  auto* file = static_cast<const tcpx_emu_counters_file*>(
      ::mmap(nullptr, sizeof(tcpx_emu_counters_file), PROT_READ, MAP_SHARED, fd, 0));
  ::close(fd);
  ::unlink(name);
  ASSERT_NE(file, MAP_FAILED);
  EXPECT_EQ(std::memcmp(file->magic, "TCPXEMU1", 8), 0);
  EXPECT_EQ(file->devices, 1u);
  EXPECT_EQ(file->counters_bytes, sizeof(tcpx_emu_counters));
  EXPECT_GE(file->counters[0].rx_devmem_bytes, 10000u);
  EXPECT_GE(file->counters[0].consumed, 1u);
}

}  // namespace
}  // namespace tcpx::test
