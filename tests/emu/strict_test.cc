// Strict mode: every rule of the contract, broken once. The call fails, says which rule, counts it,
// and whatever can go on goes on.
#include <unistd.h>

#include <cstring>
#include <thread>

#include "plugin.h"

namespace tcpx::test {
namespace {

class Strict : public ::testing::Test {
 protected:
  // The rule just broken, after checking that it was counted and said.
  void expect_broken(int rc, const std::string& rule) {
    EXPECT_EQ(rc, nccl::kInternalError);
    EXPECT_EQ(counters().misuses, ++misuses_);
    EXPECT_NE(std::string(extras().last_misuse()).find(rule), std::string::npos)
        << extras().last_misuse();
    EXPECT_TRUE(PluginLog::has("strict: " + std::string(extras().last_misuse())))
        << PluginLog::all();
  }
  int test(void* request) {
    int done = 0;
    return plugin().test(request, &done, nullptr);
  }
  // Receives one message and leaves it done but not consumed.
  void* received(const Pair& pair, const Registered& from, const Registered& to, int size = 100) {
    void* receive = irecv(pair, target_.data(), 4096, to);
    void* send = isend(pair, source_.data(), size, from);
    finish_both(send, receive);
    return receive;
  }

  Environment env_;
  uint64_t misuses_ = counters().misuses;
  Pages source_{1 << 20}, target_{1 << 20};
};

TEST_F(Strict, TestOnlyTheOldest) {
  Pair pair;
  Registered from(pair.send, source_), to(pair.receive, target_);
  void* first = irecv(pair, target_.data(), 4096, to);
  void* second = irecv(pair, target_.data(), 4096, to);
  expect_broken(test(second), "oldest");
  void* send = isend(pair, source_.data(), 10, from);
  finish_both(send, first);
  expect_broken(test(first), "oldest");  // done already
  expect_broken(test(send), "oldest");   // freed
  finish_both(isend(pair, source_.data(), 10, from), second);
  EXPECT_EQ(consume(pair, first), 0);
  EXPECT_EQ(consume(pair, second), 0);
}

TEST_F(Strict, SixteenRequests) {
  Pair pair;
  Registered from(pair.send, source_), to(pair.receive, target_);
  uint64_t refusals = counters().refusals;
  for (int i = 0; i < 16; ++i) irecv(pair, target_.data(), 4096, to);
  int rc = 0;
  EXPECT_EQ(irecv(pair, target_.data(), 4096, to, &rc), nullptr);
  expect_broken(rc, "16 requests");
  for (int i = 0; i < 16; ++i) isend(pair, source_.data(), 10, from);
  EXPECT_EQ(isend(pair, source_.data(), 10, from, &rc), nullptr);
  expect_broken(rc, "16 requests");
  EXPECT_EQ(counters().refusals, refusals + 2);
  EXPECT_TRUE(PluginLog::has("unable to allocate requests"));
}

TEST_F(Strict, DoneReceivesCountUntilConsumed) {
  Pair pair;
  Registered from(pair.send, source_), to(pair.receive, target_);
  void* first = received(pair, from, to);
  for (int i = 0; i < 15; ++i) irecv(pair, target_.data(), 4096, to);
  int rc = 0;
  EXPECT_EQ(irecv(pair, target_.data(), 4096, to, &rc), nullptr);
  expect_broken(rc, "16 requests");
  EXPECT_EQ(consume(pair, first), 0);
  EXPECT_NE(irecv(pair, target_.data(), 4096, to), nullptr);
}

TEST_F(Strict, ConsumeInOrder) {
  Pair pair;
  Registered from(pair.send, source_), to(pair.receive, target_);
  void* first = received(pair, from, to);
  void* second = received(pair, from, to, 0);
  expect_broken(consume(pair, second), "in the order");
  EXPECT_EQ(consume(pair, first), 0);
  EXPECT_EQ(consume(pair, second), 0);
}

TEST_F(Strict, ConsumeAfterDone) {
  Pair pair;
  Registered from(pair.send, source_), to(pair.receive, target_);
  void* receive = irecv(pair, target_.data(), 4096, to);
  expect_broken(consume(pair, receive), "after test() said done");
  void* send = isend(pair, source_.data(), 10, from);
  finish_both(send, receive);
  EXPECT_EQ(consume(pair, receive), 0);
  expect_broken(consume(pair, receive), "after test() said done");
}

TEST_F(Strict, ConsumeOnlyReceives) {
  Pair pair;
  Registered from(pair.send, source_);
  void* send = isend(pair, source_.data(), 10, from);
  expect_broken(consume(pair, send), "only for receives");
  expect_broken(consume(pair, nullptr), "only for receives");
}

TEST_F(Strict, NotLargerThanTheChunk) {
  Pair pair;
  Registered from(pair.send, source_);
  int rc = 0;
  EXPECT_EQ(isend(pair, source_.data(), 524289, from, &rc), nullptr);
  expect_broken(rc, "NCCL_DYNAMIC_CHUNK_SIZE");
  EXPECT_NE(isend(pair, source_.data(), 524288, from), nullptr);
}

TEST_F(Strict, ChunkSizeMustBeSet) {
  Environment unset({{"NCCL_DYNAMIC_CHUNK_SIZE", "0"}});
  Pair pair;
  Registered from(pair.send, source_);
  int rc = 0;
  EXPECT_EQ(isend(pair, source_.data(), 1, from, &rc), nullptr);
  expect_broken(rc, "NCCL_DYNAMIC_CHUNK_SIZE must be set");
  EXPECT_EQ(finish(isend(pair, source_.data(), 0, from)), 0);
}

TEST_F(Strict, ReceiversChunkMustBeLargeEnough) {
  void* listener = nullptr;
  alignas(8) char handle[nccl::kHandleBytes];
  Pair pair;
  pair.close();
  {
    Environment small({{"NCCL_DYNAMIC_CHUNK_SIZE", "4096"}});
    ASSERT_EQ(plugin().listen(0, handle, &listener), 0);
  }
  Environment large;
  eventually([&] {
    bool ok = pair.send || plugin().connect(0, handle, &pair.send, nullptr) == 0;
    ok &= pair.receive || plugin().accept(listener, &pair.receive, nullptr) == 0;
    EXPECT_TRUE(ok);
    return pair.send && pair.receive;
  });
  plugin().close_listen(listener);
  Registered from(pair.send, source_), to(pair.receive, target_);
  void* receive = irecv(pair, target_.data(), 8192, to);
  EXPECT_EQ(finish(isend(pair, source_.data(), 8192, from)), 0);
  expect_broken(finish(receive), "NCCL_DYNAMIC_CHUNK_SIZE");
}

TEST_F(Strict, RegistrationInWholePages) {
  Pair pair;
  void* region = nullptr;
  uint8_t* data = source_.data();
  expect_broken(plugin().reg_mr(pair.send, data + 16, 4096, nccl::kPtrCuda, &region),
                "4096-byte pages");
  expect_broken(plugin().reg_mr(pair.receive, data, 100, nccl::kPtrCuda, &region),
                "4096-byte pages");
  EXPECT_EQ(plugin().reg_mr(pair.send, data, 4096, 4, &region), nccl::kInternalError);
  EXPECT_EQ(plugin().reg_mr(pair.send, data, -1, nccl::kPtrHost, &region), nccl::kInternalError);
  EXPECT_EQ(region, nullptr);
  Registered host(pair.send, data + 16, 100, nccl::kPtrHost);
}

// One thread is inside test() for ever, another comes.
TEST_F(Strict, OneThreadAtATime) {
  auto body = [this] {
    Environment env({{"TCPX_EMU_FAULTS", "hang_in:test"}});
    Pair pair;
    Registered to(pair.receive, target_);
    void* request = irecv(pair, target_.data(), 4096, to);
    std::thread([&] { test(request); }).detach();
    int rc = 0;
    eventually([&] {  // until the other is inside
      void* more = nullptr;
      void* data = target_.data();
      void* region = to.get();
      int size = 10, tag = 0;
      rc = plugin().irecv(pair.receive, 1, &data, &size, &tag, &region, &more);
      return rc != 0;
    });
    misuses_ = counters().misuses - 1;
    expect_broken(rc, "one thread at a time");
    expect_broken(pair.close_receive(), "one thread at a time");
    ::_exit(HasFailure() ? 1 : 0);
    return 0;
  };
  EXPECT_EQ(in_child(body), 0);
}

TEST_F(Strict, CloseWithUnconsumedReceives) {
  Pair pair;
  Registered from(pair.send, source_);
  void* region = nullptr;
  ASSERT_EQ(plugin().reg_mr(pair.receive, target_.data(), 4096, nccl::kPtrCuda, &region), 0);
  {
    Registered to(pair.receive, target_);
    received(pair, from, to);
  }
  expect_broken(pair.close_receive(), "consumed before the comm is closed");
  EXPECT_TRUE(PluginLog::has("some pages not yet freed?"));
  EXPECT_EQ(counters().pool_pages_free, counters().pool_pages);  // it was closed all the same
  EXPECT_EQ(plugin().dereg_mr(nullptr, region), 0);
}

TEST_F(Strict, CloseWithUnfinishedReceivesIsAllowed) {
  Pair pair;
  {
    Registered to(pair.receive, target_);
    irecv(pair, target_.data(), 4096, to);
  }
  EXPECT_EQ(pair.close_receive(), 0);
}

TEST_F(Strict, HandleAndListenerOnce) {
  alignas(8) char handle[nccl::kHandleBytes];
  void *listener = nullptr, *send = nullptr, *receive = nullptr, *again = nullptr;
  ASSERT_EQ(plugin().listen(0, handle, &listener), 0);
  eventually([&] {
    bool ok = true;
    if (!send) ok &= plugin().connect(0, handle, &send, nullptr) == 0;
    if (!receive) ok &= plugin().accept(listener, &receive, nullptr) == 0;
    EXPECT_TRUE(ok);
    return send && receive;
  });
  expect_broken(plugin().connect(0, handle, &again, nullptr), "handle buffer");
  EXPECT_EQ(again, nullptr);
  expect_broken(plugin().accept(listener, &again, nullptr), "one accept()");
  EXPECT_EQ(again, nullptr);
  EXPECT_EQ(plugin().close_listen(listener), 0);
  EXPECT_EQ(plugin().close_send(send), 0);
  EXPECT_EQ(plugin().close_recv(receive), 0);
}

TEST_F(Strict, ConnectPolledWithOneBuffer) {
  alignas(8) char handle[nccl::kHandleBytes], copy[nccl::kHandleBytes];
  void *listener = nullptr, *send = nullptr;
  ASSERT_EQ(plugin().listen(0, handle, &listener), 0);
  std::memcpy(copy, handle, sizeof copy);
  ASSERT_EQ(plugin().connect(0, handle, &send, nullptr), 0);
  ASSERT_EQ(send, nullptr);
  expect_broken(plugin().connect(0, copy, &send, nullptr), "same handle buffer");
  EXPECT_EQ(plugin().close_listen(listener), 0);
}

TEST_F(Strict, OnlyRegisteredMemory) {
  Pair pair;
  Registered from(pair.send, source_.data() + 4096, 8192),
      to(pair.receive, target_.data(), 4096, nccl::kPtrHost);
  int rc = 0;
  for (auto [offset, size] : {std::pair{0, 10}, {4096 + 8000, 193}, {4096 + 8192, 1}, {4095, 2}}) {
    EXPECT_EQ(isend(pair, source_.data() + offset, size, from, &rc), nullptr);
    expect_broken(rc, "isend() only from inside");
  }
  EXPECT_NE(isend(pair, source_.data() + 4096 + 8000, 192, from), nullptr);
  EXPECT_EQ(irecv(pair, target_.data() + 1, 4096, to, &rc), nullptr);
  expect_broken(rc, "irecv() only into");
}

TEST_F(Strict, ReceiveLargeEnough) {
  Pair pair;
  Registered from(pair.send, source_), to(pair.receive, target_);
  void* receive = irecv(pair, target_.data(), 1000, to);
  EXPECT_EQ(finish(isend(pair, source_.data(), 1001, from)), 0);
  expect_broken(finish(receive), "at least as large");
  EXPECT_EQ(pair.close_receive(), 0);
}

TEST_F(Strict, ArgumentsThatMakeNoSense) {
  Pair pair;
  Registered from(pair.send, source_), to(pair.receive, target_);
  void *request = nullptr, *data = target_.data(), *region = to.get(), *none = nullptr;
  int size = 10, tag = 0;
  EXPECT_EQ(plugin().irecv(pair.receive, 2, &data, &size, &tag, &region, &request), 3);
  EXPECT_EQ(plugin().irecv(pair.receive, 1, &data, &size, &tag, &none, &request), 3);
  EXPECT_EQ(plugin().irecv(pair.send, 1, &data, &size, &tag, &region, &request), 3);
  EXPECT_EQ(plugin().isend(pair.send, data, 10, 0, nullptr, &request), 3);
  EXPECT_EQ(plugin().isend(pair.receive, data, 10, 0, from.get(), &request), 3);
  EXPECT_EQ(plugin().irecv_consumed(pair.receive, 2, request), 3);
  EXPECT_EQ(request, nullptr);
}

TEST(Lenient, TheRealPluginsAnswers) {
  Environment env({{"TCPX_EMU_STRICT", "0"}});
  uint64_t misuses = counters().misuses;
  Pages source(1 << 20), target(1 << 20);
  Pair pair;
  {
    Registered from(pair.send, source), to(pair.receive, target);
    void* first = irecv(pair, target.data(), 4096, to);
    void* second = irecv(pair, target.data(), 4096, to);
    int done = 0;
    EXPECT_EQ(plugin().test(second, &done, nullptr), 3);
    EXPECT_TRUE(PluginLog::has("test called with invalid request"));
    void* send = isend(pair, source.data(), 10, from);
    finish_both(send, first);
    EXPECT_EQ(consume(pair, send), 0);  // a warning only
    EXPECT_EQ(consume(pair, second), 3);
  }
  EXPECT_EQ(pair.close_receive(), 0);
  EXPECT_TRUE(PluginLog::has("some pages not yet freed?"));
  EXPECT_EQ(counters().misuses, misuses);
}

TEST(Lenient, WithoutAChunkSizeNothingEverMoves) {
  Environment env({{"TCPX_EMU_STRICT", "0"}, {"NCCL_DYNAMIC_CHUNK_SIZE", "0"}});
  Pages source(4096);
  Pair pair;
  Registered from(pair.send, source);
  EXPECT_EQ(finish(isend(pair, source.data(), 10, from), Ms{50}), -1);
}

TEST(Lenient, OverrunIsRefusedAllTheSame) {
  Environment env({{"TCPX_EMU_STRICT", "0"}});
  Pages source(8192), target(8192);
  Pair pair;
  Registered from(pair.send, source), to(pair.receive, target, nccl::kPtrHost);
  void* receive = irecv(pair, target.data(), 1000, to);
  EXPECT_EQ(finish(isend(pair, source.data(), 8192, from)), 0);
  EXPECT_EQ(finish(receive), 3);
  EXPECT_EQ(target.data()[1000], 0xCD);
}

TEST(Lenient, TooManyFragments) {
  Environment env({{"TCPX_EMU_STRICT", "0"},
                   {"TCPX_EMU_FRAGMENTS", "mtu"},
                   {"NCCL_DYNAMIC_CHUNK_SIZE", "4194304"}});
  Pages source(4 << 20), target(4 << 20);
  Pair pair;
  Registered from(pair.send, source), to(pair.receive, target);
  void* receive = irecv(pair, target.data(), 4 << 20, to);
  void* send = isend(pair, source.data(), 4 << 20, from);
  int done = 0, rc = 0;
  eventually(
      [&] {
        plugin().test(send, &done, nullptr);
        rc = plugin().test(receive, &done, nullptr);
        return rc != 0 || done != 0;
      },
      kLong, Ms{0});
  EXPECT_EQ(rc, nccl::kInternalError);
  EXPECT_TRUE(PluginLog::has("request too many pages"));
}

}  // namespace
}  // namespace tcpx::test
