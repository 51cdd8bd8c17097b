// fork(): the child has a copy of every handle and none of the threads. It gets an answer, touches
// nothing of its parent's, and may have an engine of its own.
#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "fault_fixture.h"

namespace tcpx::test {
namespace {

int wrong = 0;  // in the child

void expect(tcpx_code code, tcpx_code expected, const char* what) {
  if (code == expected) return;
  ++wrong;
  std::fprintf(stderr, "in the child: %s: %s: %s\n", what, tcpx_code_name(code), tcpx_last_error());
}

// Through exit(), with the destructors of statics. The leak checker would look for what the threads
// of the parent held.
[[noreturn]] void leave() {
#if defined(TCPX_TEST_ASAN)
  ::_exit(wrong);
#else
  std::exit(wrong);
#endif
}

class Fork : public Fault {
 protected:
  void SetUp() override {
    // Nothing of these tests is about a peer that is slow.
    Options patient = {{"peer_timeout", "60s"}, {"lane_timeout", "50s"}, {"deadline", "60s"}};
    start(fault_options(patient));
    target_ = std::make_unique<ProcessTarget>(kBytes, fault_options(patient));
    id_ = connect(target_->program.info());
    mine_ = make_local(engine, kBytes, kReadWrite, 5);
    expect_good_peer_works();
  }
  void TearDown() override {
    transfer_.release();
    Fault::TearDown();
  }
  // Ends with status 0, in time.
  static std::string end_of(pid_t child) {
    int status = 0;
    if (!eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; })) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return "the child hangs";
    }
    if (WIFSIGNALED(status)) return "the child died of signal " + std::to_string(WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? "" : std::to_string(WEXITSTATUS(status)) + " wrong answers";
  }
  void call_everything() {
    tcpx_engine* e = engine.raw();
    tcpx_transfer* t = transfer_.raw();
    size_t length = 0;
    char bytes[256];
    tcpx_peer peer = 0;
    tcpx_peer_info info{};
    tcpx_region region = 0;
    tcpx_receipt receipt{};
    tcpx_transfer* made = nullptr;
    tcpx_local_piece piece{mine_.region, 0, 1};
    tcpx_remote_piece theirs{&target_->memory, 0, 1};
    constexpr tcpx_code kNo = TCPX_UNSUPPORTED;
    expect(tcpx_connection_info(e, nullptr, &length), kNo, "connection_info");
    expect(tcpx_config_text(e, nullptr, &length), kNo, "config_text");
    expect(tcpx_counters_json(e, nullptr, &length), kNo, "counters_json");
    expect(tcpx_connect(e, bytes, sizeof bytes, &peer), kNo, "connect");
    expect(tcpx_connect_address(e, "127.0.0.1:1", &peer), kNo, "connect_address");
    expect(tcpx_peer_wait(e, id_, -1), kNo, "peer_wait");
    expect(tcpx_accept(e, -1, &peer), kNo, "accept");
    expect(tcpx_peer_get(e, id_, &info), kNo, "peer_get");
    expect(tcpx_register(e, bytes, sizeof bytes, 0, &region), kNo, "register");
    expect(tcpx_register_for(e, bytes, sizeof bytes, 0, &id_, 1, &region), kNo, "register_for");
    expect(tcpx_grant(e, mine_.region, id_), kNo, "grant");
    expect(tcpx_revoke_grant(e, mine_.region, id_), kNo, "revoke_grant");
    expect(tcpx_suspend(e, mine_.region), kNo, "suspend");
    expect(tcpx_resume(e, mine_.region), kNo, "resume");
    expect(tcpx_deregister(e, mine_.region), kNo, "deregister");
    length = sizeof bytes;
    expect(tcpx_region_export(e, mine_.region, bytes, &length), kNo, "region_export");
    expect(tcpx_prepare(e, id_, TCPX_WRITE, &piece, &theirs, 1, &made), kNo, "prepare");
    expect(tcpx_post(t, nullptr), kNo, "post");
    expect(tcpx_poll(t), kNo, "poll");
    expect(tcpx_wait(t, -1), kNo, "wait");
    expect(tcpx_cancel(t, -1), kNo, "cancel");
    expect(tcpx_receipt_get(t, &receipt), kNo, "receipt_get");
    expect(tcpx_receipt_json(t, bytes, &length), kNo, "receipt_json");
    (void)tcpx_transfer_error(t);
    expect(tcpx_notify(e, id_, "x", 1, -1), kNo, "notify");
    expect(tcpx_next_notification(e, -1, &peer, bytes, &length), kNo, "next_notification");
    expect(tcpx_disconnect(e, id_), kNo, "disconnect");
    transfer_.release();
    engine.destroy();
    good.destroy();
  }
  // An engine of the child's own, and a transfer to the parent's.
  void use_own_engine() {
    Engine own_engine;
    expect(Engine::create(fault_options(), &own_engine).code(), TCPX_OK, "an own engine");
    Local local = make_local(own_engine, kSmall, 0, 7);
    tcpx_peer parent = 0;
    expect(own_engine.connect(good_info_, &parent).code(), TCPX_OK, "to connect to the parent");
    Transfer transfer;
    expect(own_engine
               .prepare(parent, TCPX_WRITE, {{local.region, 0, kSmall}},
                        {{&good_remote, 0, kSmall}}, &transfer)
               .code(),
           TCPX_OK, "to prepare a transfer");
    expect(transfer.post().code(), TCPX_OK, "to post it");
    expect(transfer.wait(kLong).code(), TCPX_OK, "to wait for it");
    transfer.release();
    own_engine.destroy();
  }

  static constexpr uint64_t kBytes = 16 << 20;
  std::unique_ptr<ProcessTarget> target_;
  Local mine_;
  tcpx_peer id_ = 0;
  Transfer transfer_;
  Bytes good_info_;
};

TEST_F(Fork, TheChildGetsAnAnswerAndTheParentNoticesNothing) {
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0}, failures{0};
  std::thread mover([&] {
    while (!stop) {
      for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
        Transfer each;
        Result result = engine.prepare(id_, op, {{mine_.region, 0, kBytes}},
                                       {{&target_->memory, 0, kBytes}}, &each);
        if (result) result = each.post();
        if (result) result = each.wait(kLong);
        failures += !result.ok();
      }
      ++rounds;
    }
  });
  ASSERT_TRUE(succeeded(engine.prepare(id_, TCPX_WRITE, {{mine_.region, 0, kBytes}},
                                       {{&target_->memory, 0, kBytes}}, &transfer_)));
  for (int i = 0; i < smaller_if_sanitized(5, 2); ++i) {
    int before = rounds;
    EXPECT_TRUE(eventually([&] { return rounds > before; }));
    ASSERT_TRUE(succeeded(transfer_.post()));
    pid_t child = ::fork();
    if (child == 0) {
      call_everything();
      leave();
    }
    EXPECT_EQ(end_of(child), "");
    EXPECT_TRUE(succeeded(transfer_.wait(kLong))) << transfer_.error();
  }
  stop = true;
  mover.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(count("lanes_lost"), 0u);
  EXPECT_EQ(count("peers_lost"), 0u);
  EXPECT_EQ(mismatch(*mine_.memory, 0, kBytes, Pattern(5), 0), -1);
}

TEST_F(Fork, TheChildMayHaveAnEngineOfItsOwn) {
#ifdef TCPX_TEST_TSAN
  GTEST_SKIP() << "TSan does not bear threads in the child of a process with threads";
#endif
  good_info_ = good.connection_info();
  pid_t child = ::fork();
  if (child == 0) {
    use_own_engine();
    leave();
  }
  EXPECT_EQ(end_of(child), "");
  EXPECT_EQ(mismatch(*good_memory.memory, 0, kSmall, Pattern(7), 0), -1);
  EXPECT_EQ(count("lanes_lost"), 0u);
}

// The kernel tells us of the death only when nobody holds the sockets any more.
TEST_F(Fork, AnOwnerThatDiesIsMissedAlthoughItsChildLives) {
  if (std::getenv("TCPX_TEST_NET_PLUGIN") != nullptr)
    GTEST_SKIP() << "the child keeps the sockets that a net plugin has opened";
  auto child = static_cast<pid_t>(std::stol(target_->program("fork {}", kLong.count())));
  Stopwatch watch;
  target_->program.kill();
  EXPECT_TRUE(eventually([&] { return state_of(id_) != TCPX_OK; }));
  EXPECT_LT(watch.elapsed(), patience(3'000));  // peer_timeout is 60 s
  EXPECT_EQ(state_of(id_), TCPX_PEER_DISCONNECTED);
  EXPECT_EQ(::kill(child, 0), 0) << "the child did not live";
  ::kill(child, SIGKILL);
}

}  // namespace
}  // namespace tcpx::test
