// Every fault of the plan: what the user of the plugin then sees.
#include <unistd.h>

#include "plugin.h"
#include "support/proc.h"

namespace tcpx::test {
namespace {

// A connection and registered memory on both ends, with a plan.
struct Bench {
  explicit Bench(const std::string& plan, Variables more = {}) : env(more) {
    env.set("TCPX_EMU_FAULTS", plan);
    EXPECT_EQ(plugin().init(nullptr), 0) << PluginLog::all();
    pair = std::make_unique<Pair>();
    if (pair->send == nullptr || pair->receive == nullptr) return;
    from = std::make_unique<Registered>(pair->send, source);
    to = std::make_unique<Registered>(pair->receive, target);
  }
  void* send(int size = 10000) { return isend(*pair, source.data(), size, *from); }
  void* receive() { return irecv(*pair, target.data(), 65536, *to); }
  // One message that goes well.
  void good() {
    void* r = receive();
    finish_both(send(), r);
    EXPECT_EQ(consume(*pair, r), 0);
  }
  // One message; the result at the receiver. Its end is not awaited at the sender.
  int bad(Ms limit = kLong) {
    void* r = receive();
    finish(send(), patience(200));
    return finish(r, limit);
  }

  Environment env;
  uint64_t fired = counters().faults_fired, misuses = counters().misuses;
  Pages source{65536}, target{65536};
  std::unique_ptr<Pair> pair;
  std::unique_ptr<Registered> from, to;
};

TEST(Fault, NoCmsgFailsTheCommAtThatReceive) {
  Bench bench("no_cmsg@3");
  bench.good();
  bench.good();
  EXPECT_EQ(bench.bad(), nccl::kInternalError);
  EXPECT_TRUE(PluginLog::has("rx no cmsg"));
  EXPECT_EQ(counters().faults_fired, bench.fired + 1);
  int rc = 0;
  EXPECT_EQ(irecv(*bench.pair, bench.target.data(), 10, *bench.to, &rc), nullptr);
  EXPECT_EQ(rc, nccl::kInternalError);  // and it stays broken
  EXPECT_EQ(counters().misuses, bench.misuses) << extras().last_misuse();
}

TEST(Fault, NoCmsgMayEndTheProcess) {
  int rc = in_child([] {
    Bench bench("no_cmsg", {{"TCPX_EMU_EXIT", "1"}});
    bench.bad();
    return 55;
  });
  EXPECT_EQ(rc, 1);
}

TEST(Fault, HostLanded) {
  Bench bench("host_landed@2");
  bench.good();
  EXPECT_EQ(bench.bad(), nccl::kInternalError);
  EXPECT_TRUE(PluginLog::has("data landed on host memory"));
}

TEST(Fault, PoolStarvedForAWhile) {
  Bench bench("pool_starved@2:100");
  bench.good();
  Stopwatch watch;
  bench.good();
  EXPECT_GE(watch.elapsed(), Ms{95});
  bench.good();
}

TEST(Fault, PoolStarvedForEver) {
  Bench bench("pool_starved");
  EXPECT_EQ(bench.bad(Ms{100}), -1);
}

TEST(Fault, SteeringRefusedFailsBothEnds) {
  Environment env({{"TCPX_EMU_FAULTS", "steering_refused"}});
  Pair pair(0, false);
  EXPECT_EQ(pair.send_result, nccl::kInternalError);
  EXPECT_EQ(pair.receive_result, nccl::kInternalError);
  EXPECT_TRUE(PluginLog::has("flow steering rule"));
  EXPECT_TRUE(PluginLog::has("failed accept socket"));
  EXPECT_TRUE(PluginLog::has("failed to connect socket"));
}

TEST(Fault, SteeringRefusedTwiceIsTriedAgain) {
  Bench bench("steering_refused:2");
  bench.good();
  EXPECT_EQ(counters().faults_fired, bench.fired + 1);
}

TEST(Fault, SteeringSilentNeverAccepts) {
  Environment env({{"TCPX_EMU_FAULTS", "steering_silent"}, {"TCPX_EMU_SETUP_TIMEOUT_MS", "100"}});
  Holdings before;
  alignas(8) char handle[nccl::kHandleBytes];
  void *listener = nullptr, *send = nullptr, *receive = nullptr;
  ASSERT_EQ(plugin().listen(0, handle, &listener), 0);
  int send_rc = 0, receive_rc = 0;
  Stopwatch watch;
  EXPECT_TRUE(eventually([&] {
    if (send_rc == 0) send_rc = plugin().connect(0, handle, &send, nullptr);
    receive_rc |= plugin().accept(listener, &receive, nullptr);
    return send_rc != 0 && watch.elapsed() > Ms{200};
  }));
  EXPECT_EQ(send_rc, nccl::kInternalError);
  EXPECT_EQ(receive_rc, 0);
  EXPECT_EQ(receive, nullptr);
  EXPECT_EQ(plugin().close_listen(listener), 0);
  EXPECT_TRUE(before.restored()) << before.now();
}

TEST(Fault, DeviceLostFailsEveryCall) {
  Bench bench("device_lost@5");
  bench.good();
  bench.good();
  void* receive = bench.receive();  // the fifth request
  int done = 0;
  EXPECT_EQ(plugin().test(receive, &done, nullptr), nccl::kSystemError);
  int rc = 0;
  isend(*bench.pair, bench.source.data(), 10, *bench.from, &rc);
  EXPECT_EQ(rc, nccl::kSystemError);
  char handle[nccl::kHandleBytes];
  void* listener = nullptr;
  EXPECT_EQ(plugin().listen(0, handle, &listener), nccl::kSystemError);
  EXPECT_EQ(bench.pair->close_send(), 0);
  EXPECT_EQ(bench.pair->close_receive(), 0);
}

TEST(Fault, OtherDevicesAreNotLost) {
  Environment env({{"TCPX_EMU_FAULTS", "device_lost,dev=1"}, {"TCPX_EMU_DEVICES", "2"}});
  Pages pages(4096);
  Pair good(0), bad(1);
  Registered from(good.send, pages), from_bad(bad.send, pages);
  EXPECT_EQ(finish(isend(good, pages.data(), 10, from)), 0);
  void* request = isend(bad, pages.data(), 10, from_bad);
  EXPECT_EQ(finish(request), nccl::kSystemError);
  EXPECT_EQ(finish(isend(good, pages.data(), 10, from)), 0);
}

TEST(Fault, DataHangSaysNothing) {
  Bench bench("data_hang@3");  // requests: receive, send, receive
  bench.good();
  EXPECT_EQ(bench.bad(Ms{100}), -1);
}

TEST(Fault, DataHangAtTheSender) {
  Bench bench("data_hang@4");
  bench.good();
  void* receive = bench.receive();
  EXPECT_EQ(finish(bench.send(), Ms{100}), -1);
  EXPECT_EQ(finish(receive, Ms{50}), -1);
}

TEST(Fault, ControlClosed) {
  Bench bench("ctrl_closed@3");
  bench.good();
  void* receive = bench.receive();
  EXPECT_EQ(finish(receive), nccl::kSystemError);
  // What the sender hands to its kernel first is still taken.
  int rc = 0;
  EXPECT_TRUE(eventually([&] {
    void* send = isend(*bench.pair, bench.source.data(), 100, *bench.from, &rc);
    if (rc == 0) rc = finish(send);
    return rc != 0;
  }));
  EXPECT_EQ(rc, nccl::kSystemError);
}

TEST(Fault, SlowSocket) {
  Bench bench("slow_socket:1M");
  Stopwatch watch;
  for (int i = 0; i < 10; ++i) bench.good();  // 100 kB
  EXPECT_GE(watch.elapsed(), Ms{85});
  EXPECT_LE(watch.elapsed(), patience(2000));
}

TEST(Fault, SlowSocketFromTheSecondComm) {
  Environment env({{"TCPX_EMU_FAULTS", "slow_socket@2:1000"}});
  Pages pages(65536);
  Pair fast, slow;
  Registered a(fast.send, pages), b(slow.send, pages);
  EXPECT_EQ(finish(isend(fast, pages.data(), 65536, a)), 0);
  EXPECT_EQ(finish(isend(slow, pages.data(), 65536, b), Ms{100}), -1);
}

TEST(Fault, LateConsume) {
  Bench bench("late_consume:300");
  bench.good();
  EXPECT_LT(counters().pool_pages_free, counters().pool_pages);
  std::this_thread::sleep_for(Ms{320});
  bench.good();
  EXPECT_EQ(counters().pool_pages - counters().pool_pages_free, 3u);  // of the second only
}

TEST(Fault, DoneDelayed) {
  Bench bench("done_delayed:50000");
  Stopwatch watch;
  bench.good();
  EXPECT_GE(watch.elapsed(), Ms{50});
}

TEST(Fault, ConnectAtOnceHasNoRequestsUntilReady) {
  Environment env({{"TCPX_EMU_FAULTS", "connect_at_once"},
                   {"NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", "50000"}});
  alignas(8) char handle[nccl::kHandleBytes];
  void* listener = nullptr;
  ASSERT_EQ(plugin().listen(0, handle, &listener), 0);
  Pair pair(0, false);  // only to hold the comms
  pair.close();
  nccl::DeviceHandle* storage = &pair.description;
  ASSERT_EQ(plugin().connect(0, handle, &pair.send, nullptr), 0);
  ASSERT_EQ(plugin().accept(listener, &pair.receive, &storage), 0);
  ASSERT_NE(pair.send, nullptr);
  ASSERT_NE(pair.receive, nullptr);
  EXPECT_EQ(plugin().close_listen(listener), 0);  // the set-up goes on
  Pages source(4096), target(4096);
  Registered from(pair.send, source), to(pair.receive, target);
  void *send = nullptr, *receive = irecv(pair, target.data(), 4096, to);
  EXPECT_EQ(receive, nullptr);  // rc 0: not yet
  EXPECT_TRUE(eventually([&] {
    if (send == nullptr) send = isend(pair, source.data(), 100, from);
    if (receive == nullptr) receive = irecv(pair, target.data(), 4096, to);
    return send != nullptr && receive != nullptr;
  }));
  finish_both(send, receive);
  EXPECT_EQ(consume(pair, receive), 0);
}

TEST(Fault, ConnectAtOnceMayWaitInIsend) {
  Environment env(
      {{"TCPX_EMU_FAULTS", "connect_at_once"}, {"NCCL_GPUDIRECTTCPX_SPINWAIT_CONNECT", "1"}});
  Pair pair;
  Pages source(4096);
  Registered from(pair.send, source);
  EXPECT_NE(isend(pair, source.data(), 100, from), nullptr);
}

TEST(Fault, ConnectAtOnceAndNobodyThere) {
  Environment env({{"TCPX_EMU_FAULTS", "connect_at_once"}, {"TCPX_EMU_SETUP_TIMEOUT_MS", "50"}});
  Holdings before;
  alignas(8) char handle[nccl::kHandleBytes];
  void *listener = nullptr, *send = nullptr;
  ASSERT_EQ(plugin().listen(0, handle, &listener), 0);
  ASSERT_EQ(plugin().connect(0, handle, &send, nullptr), 0);
  ASSERT_NE(send, nullptr);
  Pages source(4096);
  {
    Registered from(send, source);
    void* request = nullptr;
    EXPECT_TRUE(eventually(
        [&] { return plugin().isend(send, source.data(), 1, 0, from.get(), &request) != 0; }));
  }
  EXPECT_EQ(plugin().close_send(send), 0);
  EXPECT_EQ(plugin().close_listen(listener), 0);
  EXPECT_TRUE(before.restored()) << before.now();
}

TEST(Fault, ConnectPolls) {
  Environment env({{"TCPX_EMU_FAULTS", "connect_polls:500"}});
  alignas(8) char handle[nccl::kHandleBytes];
  void *listener = nullptr, *send = nullptr, *receive = nullptr;
  ASSERT_EQ(plugin().listen(0, handle, &listener), 0);
  EXPECT_TRUE(eventually([&] {
    EXPECT_EQ(plugin().accept(listener, &receive, nullptr), 0);
    return receive != nullptr || plugin().connect(0, handle, &send, nullptr) != 0;
  }));
  int polls = 0;
  while (send == nullptr && polls < 10000) {
    ASSERT_EQ(plugin().connect(0, handle, &send, nullptr), 0);
    ++polls;
  }
  EXPECT_GT(polls, 400);
  EXPECT_LE(polls, 501);
  plugin().close_send(send);
  plugin().close_recv(receive);
  plugin().close_listen(listener);
}

// Calls every function in its turn; the n-th stage is the one that must not return.
int calls_until(const std::string& fault) {
  Environment env({{"TCPX_EMU_FAULTS", fault}});
  Pair pair;
  Pages pages(4096);
  Registered from(pair.send, pages), to(pair.receive, pages);
  void* receive = irecv(pair, pages.data(), 4096, to);
  finish_both(isend(pair, pages.data(), 10, from), receive);
  consume(pair, receive);
  pair.close_send();
  return 55;
}

constexpr const char* kFunctions[] = {"init",  "listen", "connect", "accept",  "regmr",
                                      "isend", "irecv",  "test",    "consume", "close"};

TEST(Fault, HangsInEveryFunction) {
  EXPECT_EQ(in_child([] { return calls_until("hang_in:init,dev=5"); }), 55);  // no such device
  for (std::string function : kFunctions)
    EXPECT_EQ(in_child([&] { return calls_until("hang_in:" + function); }, patience(150)), -1)
        << function;
}

TEST(Fault, ExitsInEveryFunction) {
  EXPECT_EQ(in_child([] { return calls_until("exit_in:init,dev=5"); }), 55);
  EXPECT_EQ(in_child([] { return calls_until("exit_in@3:regmr"); }), 55);  // there are two
  for (std::string function : kFunctions)
    EXPECT_EQ(in_child([&] { return calls_until("exit_in:" + function); }), 1) << function;
}

TEST(Fault, FailsFromTheNthCallOn) {
  Environment env({{"TCPX_EMU_FAULTS", "fail_in@2:regmr"}});
  Pair pair;
  Pages pages(4096);
  void* handle = nullptr;
  auto register_all = [&] {
    return plugin().reg_mr(pair.send, pages.data(), 4096, nccl::kPtrCuda, &handle);
  };
  ASSERT_EQ(register_all(), nccl::kSuccess);
  plugin().dereg_mr(pair.send, handle);
  EXPECT_EQ(register_all(), nccl::kSystemError);
  EXPECT_EQ(register_all(), nccl::kSystemError);
}

}  // namespace
}  // namespace tcpx::test
