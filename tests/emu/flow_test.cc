// The order of things: slots, windows, who frees what, what done means.
#include <sys/socket.h>

#include <deque>
#include <thread>

#include "plugin.h"
#include "support/proc.h"

namespace tcpx::test {
namespace {

TEST(Flow, NothingMovesOutsideTest) {
  Environment env;
  Pair pair;
  Pages source(4096), target(4096);
  Registered from(pair.send, source), to(pair.receive, target);
  void* receive = irecv(pair, target.data(), 4096, to);
  isend(pair, source.data(), 4096, from);
  EXPECT_EQ(finish(receive, Ms{50}), -1);  // the sender is not polled
}

TEST(Flow, SlotIsTheOrdinalOfEveryReceive) {
  Environment env;
  Pair pair;
  Pages source(8192), target(8192);
  Registered from(pair.send, source), to(pair.receive, target);
  Registered to_host(pair.receive, target, nccl::kPtrHost);
  for (uint64_t k = 0; k < 40; ++k) {
    SCOPED_TRACE(k);
    bool host = k % 3 == 1, empty = k % 3 == 2;
    int size = empty ? 0 : 5000;
    void* receive = irecv(pair, target.data(), 8192, host ? to_host : to);
    void* send = isend(pair, source.data(), size, from);
    finish_both(send, receive);
    EXPECT_EQ(pair.meta().count[k % 16], host || empty ? 0u : 2u);
    EXPECT_EQ(consume(pair, receive), 0);
    EXPECT_EQ(pair.unpack()->head, ~0ull);
  }
}

TEST(Flow, TestLeavesSizesAlone) {
  Environment env;
  Pair pair;
  Pages source(4096), target(4096);
  Registered from(pair.send, source), to(pair.receive, target);
  void* receive = irecv(pair, target.data(), 4096, to);
  void* send = isend(pair, source.data(), 100, from);
  int done = 7, size = -5;
  ASSERT_EQ(plugin().test(receive, &done, &size), 0);
  EXPECT_EQ(done, 0);  // cleared first
  EXPECT_EQ(finish(send), 0);
  while (!done) ASSERT_EQ(plugin().test(receive, &done, &size), 0);
  EXPECT_EQ(size, -5);
}

// Sixteen in flight on each side; the pool is smaller than what they need.
void stream(const Pair& pair, int count, int size, uint64_t first = 0) {
  Pages source(static_cast<size_t>(size) * 16), target(static_cast<size_t>(size));
  Registered from(pair.send, source), to(pair.receive, target);
  std::deque<void*> sends, receives;
  int sent = 0, received = 0, posted = 0;
  auto end = Clock::now() + kLong;
  while (received < count && !::testing::Test::HasFatalFailure()) {
    ASSERT_LT(Clock::now(), end) << PluginLog::all();
    while (sent < count && sends.size() < 16) {
      uint8_t* data = source.data() + static_cast<size_t>(sent % 16) * static_cast<size_t>(size);
      Pattern(3, static_cast<uint64_t>(sent++)).fill(data, static_cast<uint64_t>(size), 0);
      sends.push_back(isend(pair, data, size, from));
    }
    while (posted < count && receives.size() < 16) {
      receives.push_back(irecv(pair, target.data(), size, to));
      ++posted;
    }
    int done = 0;
    if (!sends.empty()) {
      ASSERT_EQ(plugin().test(sends.front(), &done, nullptr), 0) << PluginLog::all();
      if (done) sends.pop_front();
    }
    ASSERT_EQ(plugin().test(receives.front(), &done, nullptr), 0) << PluginLog::all();
    if (!done) continue;
    auto k = static_cast<uint64_t>(received++);
    ASSERT_EQ(unpack(pair, first + k, target.data()), static_cast<uint64_t>(size));
    ASSERT_EQ(Pattern(3, k).mismatch(target.data(), static_cast<uint64_t>(size), 0), -1) << k;
    ASSERT_EQ(consume(pair, receives.front()), 0);
    receives.pop_front();
  }
  while (!sends.empty()) {
    ASSERT_EQ(finish(sends.front()), 0);
    sends.pop_front();
  }
}

class Window : public ::testing::TestWithParam<int> {};

TEST_P(Window, SixteenInFlightKeepTheirOrder) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", std::to_string(GetParam())}});
  Pair pair;
  stream(pair, smaller_if_sanitized(200, 50), 70001);
  EXPECT_EQ(counters().requests_live, 0u);
}

TEST_P(Window, PoolSmallerThanTheWindowOnlyWaits) {
  Environment env(
      {{"NCCL_NSOCKS_PERTHREAD", std::to_string(GetParam())}, {"TCPX_EMU_POOL_MB", "1"}});
  Pair pair;
  stream(pair, smaller_if_sanitized(60, 20), 500000);
  EXPECT_EQ(counters().pool_pages, 256u);
  EXPECT_LT(counters().pool_pages_min_free, 16u);
  EXPECT_EQ(counters().pool_pages_free, 256u);
}

// Larger than the chunk: not allowed, but the plugin does it. Pieces go round the sockets.
TEST_P(Window, RequestsOfManyPieces) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", std::to_string(GetParam())},
                   {"NCCL_DYNAMIC_CHUNK_SIZE", "65536"},
                   {"TCPX_EMU_FRAGMENTS", "mixed"},
                   {"TCPX_EMU_STRICT", "0"}});
  Pair pair;
  stream(pair, smaller_if_sanitized(40, 20), 1'000'001);
}

INSTANTIATE_TEST_SUITE_P(Sockets, Window, ::testing::Values(1, 3, 8));

TEST(Flow, CommsRunInParallel) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", "2"}});
  Pair a, b, c;
  std::vector<std::thread> threads;
  for (Pair* pair : {&a, &b, &c}) threads.emplace_back([pair] { stream(*pair, 60, 50001); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters().pool_pages_free, counters().pool_pages);
}

TEST(Flow, RecvSyncSendsNothingUnasked) {
  Environment env({{"NCCL_GPUDIRECTTCPX_RECV_SYNC", "1"}});
  Pair pair;
  Pages source(4096), target(4096);
  Registered from(pair.send, source), to(pair.receive, target);
  void* send = isend(pair, source.data(), 4096, from);
  EXPECT_EQ(finish(send, Ms{50}), -1);
  void* receive = irecv(pair, target.data(), 4096, to);
  finish_both(send, receive);
  EXPECT_EQ(consume(pair, receive), 0);
  stream(pair, 50, 30000, 1);
}

TEST(Flow, SendDoneMayMeanReceived) {
  Environment env({{"TCPX_EMU_SEND_DONE", "acked"}});
  Pair pair;
  Pages source(4096), target(4096);
  Registered from(pair.send, source), to(pair.receive, target);
  void* send = isend(pair, source.data(), 4096, from);
  EXPECT_EQ(finish(send, Ms{50}), -1);
  void* receive = irecv(pair, target.data(), 4096, to);
  finish_both(send, receive);
  EXPECT_EQ(consume(pair, receive), 0);
  stream(pair, 50, 30000, 1);
}

TEST(Flow, SendDoneMeansHandedToTheKernel) {
  Environment env;
  Pair pair;
  Pages source(4096);
  Registered from(pair.send, source);
  EXPECT_EQ(finish(isend(pair, source.data(), 4096, from)), 0);  // nobody receives
}

TEST(Flow, PlainPluginPutsBytesInPlace) {
  Environment env({{"TCPX_EMU_TYPE", "host"}});
  nccl::PropertiesV7 p;
  ASSERT_EQ(plugin().get_properties(0, &p), 0);
  EXPECT_EQ(p.device_type, nccl::kDeviceHost);
  EXPECT_EQ(p.ptr_support, 3);
  Pair pair;
  EXPECT_EQ(pair.description.handle, nullptr);
  Pages source(65536), target(65536);
  Registered from(pair.send, source), to(pair.receive, target);
  for (uint64_t k = 0; k < 40; ++k) {  // more than 16: test() frees the slot
    Pattern(5, k).fill(source.data(), 60001, 0);
    void* receive = irecv(pair, target.data(), 65536, to);
    void* send = isend(pair, source.data(), 60001, from);
    ASSERT_EQ(finish(send), 0);
    int done = 0, size = 0;
    while (!done) ASSERT_EQ(plugin().test(receive, &done, &size), 0);
    EXPECT_EQ(size, 60001);
    ASSERT_EQ(Pattern(5, k).mismatch(target.data(), 60001, 0), -1);
  }
}

TEST(Flow, HostMemoryIsReceivedInPlace) {
  Environment env;
  Pair pair;
  HostMemory source(60001, 13), target(60001, 7);  // any address will do
  Registered from(pair.send, source.address(), 60001, nccl::kPtrHost);
  Registered to(pair.receive, target.address(), 60001, nccl::kPtrHost);
  uint64_t before = counters().rx_host_bytes;
  for (uint64_t k = 0; k < 20; ++k) {
    Pattern(5, k).fill(source.host(), 60001, 0);
    void* receive = irecv(pair, target.address(), 60001, to);
    void* send = isend(pair, source.address(), 60001, from);
    finish_both(send, receive);
    EXPECT_EQ(pair.meta().count[k % 16], 0u);
    ASSERT_EQ(Pattern(5, k).mismatch(target.host(), 60001, 0), -1);
    EXPECT_EQ(consume(pair, receive), 0);
  }
  EXPECT_EQ(counters().rx_host_bytes - before, 20u * 60001);
  EXPECT_EQ(target.damage(), "");
}

// ---- the end of a connection -----------------------------------------------------------------

TEST(End, WhatCameIsDeliveredBeforeTheError) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", "2"}});
  Pair pair;
  Pages source(8192), target(8192);
  Registered to(pair.receive, target);
  void* receives[3];
  for (void*& r : receives) r = irecv(pair, target.data(), 8192, to);
  {
    Registered from(pair.send, source);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(finish(isend(pair, source.data(), 8192, from)), 0);
  }
  EXPECT_EQ(pair.close_send(), 0);
  EXPECT_EQ(finish(receives[0]), 0);
  EXPECT_EQ(finish(receives[1]), 0);
  EXPECT_EQ(finish(receives[2]), nccl::kSystemError);
  EXPECT_TRUE(PluginLog::has("Connection closed by remote peer"));
  EXPECT_EQ(consume(pair, receives[0]), 0);
  EXPECT_EQ(pair.close_receive(), 0);  // one is not consumed: allowed, the peer is gone
  EXPECT_EQ(counters().pool_pages_free, counters().pool_pages);
}

TEST(End, CloseRaceOfThePlugin) {
  Environment env({{"TCPX_EMU_CLOSE_RACE", "1"}});
  Pair pair;
  Pages source(4096), target(4096);
  Registered to(pair.receive, target);
  void* first = irecv(pair, target.data(), 4096, to);
  irecv(pair, target.data(), 4096, to);  // the surplus one
  {
    Registered from(pair.send, source);
    EXPECT_EQ(finish(isend(pair, source.data(), 4096, from)), 0);
  }
  EXPECT_EQ(pair.close_send(), 0);
  EXPECT_EQ(finish(first), nccl::kSystemError);
}

TEST(End, SenderSeesThatTheReceiverIsGone) {
  Environment env;
  Pair pair;
  Pages source(524288);
  Registered from(pair.send, source);
  EXPECT_EQ(pair.close_receive(), 0);
  int rc = 0;
  bool failed = eventually([&] {
    void* request = isend(pair, source.data(), 524288, from, &rc);
    if (rc == 0) rc = finish(request);
    return rc != 0;
  });
  EXPECT_TRUE(failed);
  EXPECT_EQ(rc, nccl::kSystemError);
}

TEST(End, SenderThatWaitsSeesItToo) {
  Environment env({{"NCCL_GPUDIRECTTCPX_RECV_SYNC", "1"}});
  Pair pair;
  Pages source(4096);
  Registered from(pair.send, source);
  void* send = isend(pair, source.data(), 4096, from);
  EXPECT_EQ(pair.close_receive(), 0);
  EXPECT_EQ(finish(send), nccl::kSystemError);
}

TEST(End, NothingIsLeftOpen) {
  Environment env({{"NCCL_NSOCKS_PERTHREAD", "8"}});
  Holdings before;
  uint64_t comms = counters().comms_open;
  for (int i = 0; i < 5; ++i) {
    Pair pair;
    EXPECT_EQ(counters().comms_open, comms + 2);
  }
  EXPECT_TRUE(before.restored()) << before.now();
  EXPECT_EQ(counters().comms_open, comms);
}

}  // namespace
}  // namespace tcpx::test
