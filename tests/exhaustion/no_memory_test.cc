// Memory that cannot be had costs the peer whose it was, or the call, and nobody else.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "../support/engines.h"
#include "child.h"
#include "failing.h"

namespace tcpx::test {
namespace {

constexpr uint64_t kBytes = 300'000;
constexpr uint32_t kReadWrite = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;

Options options() {
  return loopback_options({{"deadline", std::to_string(patience(5'000).count()) + "ms"},
                           {"connect_timeout", std::to_string(patience(3'000).count()) + "ms"},
                           {"lanes", "2"},
                           {"chunk_bytes", "64K"}});
}

// A process that serves memory, and our session with it.
struct Target {
  Peer program;
  tcpx_remote_region memory{};
  Bytes info;
  tcpx_peer id = 0;

  explicit Target(uint64_t seed) {
    program.create(options());
    memory = program.memory("m", kBytes, kReadWrite, seed);
    info = program.info();
  }
};

// How the transfer ended; TCPX_IN_PROGRESS: it never did.
tcpx_code move(Engine& engine, const Target& target, tcpx_op op, const Local& local,
               const char* message) {
  tcpx_local_piece mine{local.region, 0, kBytes};
  tcpx_remote_piece theirs{&target.memory, 0, kBytes};
  tcpx_transfer* transfer = nullptr;
  tcpx_code code = tcpx_prepare(engine.raw(), target.id, op, &mine, &theirs, 1, &transfer);
  if (code != TCPX_OK) return code;
  tcpx_post_args args{};
  args.deadline_ms = -1;
  args.has_notify = message != nullptr;
  args.notify = message;
  args.notify_length = message == nullptr ? 0 : std::strlen(message);
  code = tcpx_post(transfer, &args);
  if (code == TCPX_OK) code = tcpx_wait(transfer, kLong.count());
  tcpx_release(transfer);
  return code;
}

// Everything that makes a library thread work, with a peer that stays and one that comes and goes.
struct Round {
  Engine& engine;
  Target &stays, &comes;
  Local& local;
  uint64_t number;
  int broken = 0;

  void ended(tcpx_code code, const char* what) {
    if (code == TCPX_IN_PROGRESS) TCPX_COMPLAIN("round {}: {} never ended", number, what);
    if (code != TCPX_OK && std::getenv("TCPX_TEST_VERBOSE"))
      std::fprintf(stderr, "round %d: %s: %s: %s\n", int(number), what, tcpx_code_name(code),
                   tcpx_last_error());
  }
  bool both_ways(Target& target) {
    fill(*local.memory, 0, kBytes, Pattern(1, number), 0);
    tcpx_code wrote = move(engine, target, TCPX_WRITE, local, "done");
    ended(wrote, "a WRITE");
    if (wrote == TCPX_OK && !target.program.check("m", 0, kBytes, 1, number, 0).empty())
      TCPX_COMPLAIN("round {}: a WRITE was done and its bytes are wrong", number);
    tcpx_code read = move(engine, target, TCPX_READ, local, nullptr);
    ended(read, "a READ");
    if (wrote == TCPX_OK && read == TCPX_OK &&
        mismatch(*local.memory, 0, kBytes, Pattern(1, number), 0) >= 0)
      TCPX_COMPLAIN("round {}: a READ was done and its bytes are wrong", number);
    return wrote == TCPX_OK && read == TCPX_OK;
  }
  bool they_come_to_us() {
    Reply connected = stays.program.call("connect {}", to_hex(engine.connection_info()));
    if (!connected.ok()) return false;
    bool up = stays.program.call("wait_peer {} {}", connected.text, kLong.count()).ok();
    bool told = up && stays.program.call("notify {} 6869 {}", connected.text, 5000).ok();
    (void)stays.program.call("disconnect {}", connected.text);
    return told;
  }
  void run() {
    bool met = engine.connect(comes.info, &comes.id).ok();
    tcpx_code state = met ? tcpx_peer_wait(engine.raw(), comes.id, kLong.count()) : TCPX_OK;
    ended(state, "connecting");
    broken += !both_ways(stays);
    broken += !(met && state == TCPX_OK && both_ways(comes));
    broken += !they_come_to_us();
    if (met) (void)engine.disconnect(comes.id);
  }
};

// One allocation fails per round, of whatever library thread makes it, until none is left to fail.
TCPX_CHILD(library_threads) {
  exempt_this_thread();
  Target stays(1), comes(2);
  Local local;
  Engine engine = make_engine(options());
  local = make_local(engine, kBytes, kReadWrite, 9);
  auto meet = [&] {
    TCPX_HOLDS(engine.connect(stays.info, &stays.id).ok());
    TCPX_HOLDS(engine.peer_wait(stays.id, kLong).ok());
  };
  meet();
  uint64_t number = 0, broke = 0;
  bool failed = true;
  for (; failed && complaints() == 0; ++number) {
    Round round{engine, stays, comes, local, number};
    fail_on_library_threads(static_cast<int64_t>(number) + 1);
    round.run();
    failed = stop_failing();
    if (round.broken > 1) TCPX_COMPLAIN("round {}: it cost {} peers", number, round.broken);
    if (!failed && round.broken > 0)
      TCPX_COMPLAIN("round {}: {} broke without a fault", number, round.broken);
    broke += static_cast<uint64_t>(round.broken);
    if (engine.peer_wait(stays.id, Ms{0}).code() != TCPX_OK) meet();
    Round after{engine, stays, comes, local, number + 1'000'000};
    after.run();
    if (after.broken > 0)
      TCPX_COMPLAIN("round {}: {} do not work afterwards", number, after.broken);
    for (Notification drained; engine.next_notification(&drained).ok();) {
    }
  }
  std::fprintf(stderr, "%d allocations of library threads failed, %d peers ended of it\n",
               int(number) - 1, int(broke));
  TCPX_HOLDS(number > 50);
  engine.destroy();
  return complaints();
}

// Calls `f` with its n-th allocation failing, n = 1, 2, ..., until none is left to fail: that one
// must work. `undo` follows a call that worked nevertheless.
template <class F, class Undo>
void each_allocation(const char* what, F&& f, Undo&& undo) {
  bool failed = true;
  for (int64_t n = 1; failed && complaints() == 0; ++n) {
    fail_on_this_thread(n);
    tcpx_code code = f();
    failed = stop_failing();
    bool fine = code == TCPX_OK || (failed && code == TCPX_NO_MEMORY);
    if (!fine) TCPX_COMPLAIN("{}, allocation {}: {}", what, n, tcpx_code_name(code));
    if (code == TCPX_OK) undo();
  }
}

// Every function of the C interface, on the caller's thread.
TCPX_CHILD(callers) {
  exempt_this_thread();
  Target target(1), other(2);
  Local local;
  Engine engine = make_engine(options());
  local = make_local(engine, kBytes, kReadWrite, 9);
  auto nothing = [] {};
  tcpx_engine* e = engine.raw();
  uint8_t buffer[4096];
  size_t length = 0;

  tcpx_engine* made = nullptr;
  tcpx_option lo{"interfaces", "127.0.0.1"};
  each_allocation(
      "create", [&] { return tcpx_engine_create(&lo, 1, nullptr, nullptr, &made); },
      [&] { tcpx_engine_destroy(made); });
  each_allocation(
      "connect",
      [&] { return tcpx_connect(e, target.info.data(), target.info.size(), &target.id); },
      [&] {
        TCPX_HOLDS(tcpx_peer_wait(e, target.id, kLong.count()) == TCPX_OK);
        TCPX_HOLDS(tcpx_disconnect(e, target.id) == TCPX_OK);
      });
  TCPX_HOLDS(tcpx_connect(e, target.info.data(), target.info.size(), &target.id) == TCPX_OK);
  TCPX_HOLDS(tcpx_peer_wait(e, target.id, kLong.count()) == TCPX_OK);
  tcpx_peer_info info{};
  each_allocation(
      "peer_get", [&] { return tcpx_peer_get(e, target.id, &info); }, nothing);
  tcpx_region region = 0;
  each_allocation(
      "register", [&] { return tcpx_register(e, buffer, sizeof buffer, 0, &region); },
      [&] { TCPX_HOLDS(tcpx_deregister(e, region) == TCPX_OK); });
  each_allocation(
      "export",
      [&] { return length = sizeof buffer, tcpx_region_export(e, local.region, buffer, &length); },
      nothing);

  tcpx_local_piece mine{local.region, 0, kBytes};
  tcpx_remote_piece theirs{&target.memory, 0, kBytes};
  tcpx_transfer* transfer = nullptr;
  auto prepare = [&] {
    return tcpx_prepare(e, target.id, TCPX_WRITE, &mine, &theirs, 1, &transfer);
  };
  each_allocation("prepare", prepare, [&] { tcpx_release(transfer); });
  // From post to wait: a library thread's share of the work may be done here.
  auto whole = [&](const char* message) {
    return [&, message] {
      tcpx_post_args args{};
      args.has_notify = message != nullptr;
      args.notify = message;
      args.notify_length = message == nullptr ? 0 : std::strlen(message);
      args.deadline_ms = -1;
      tcpx_code code = tcpx_post(transfer, &args);
      return code == TCPX_OK ? tcpx_wait(transfer, kLong.count()) : code;
    };
  };
  // What fails on this thread may end its peer, and it is the service thread that does so, in its
  // next turn: meeting somebody takes several of them.
  auto renew = [&] {
    TCPX_HOLDS(tcpx_connect(e, other.info.data(), other.info.size(), &other.id) == TCPX_OK);
    TCPX_HOLDS(tcpx_peer_wait(e, other.id, kLong.count()) == TCPX_OK);
    TCPX_HOLDS(tcpx_disconnect(e, other.id) == TCPX_OK);
    if (tcpx_peer_wait(e, target.id, 0) == TCPX_OK) return;
    if (transfer != nullptr) tcpx_release(transfer);
    TCPX_HOLDS(tcpx_disconnect(e, target.id) == TCPX_OK);
    TCPX_HOLDS(tcpx_connect(e, target.info.data(), target.info.size(), &target.id) == TCPX_OK);
    TCPX_HOLDS(tcpx_peer_wait(e, target.id, kLong.count()) == TCPX_OK);
    TCPX_HOLDS(prepare() == TCPX_OK);
  };
  TCPX_HOLDS(prepare() == TCPX_OK);
  for (const char* message : {(const char*)nullptr, "a notification longer than a short string"})
    for (int64_t n = 1, failed = 1; failed && complaints() == 0; ++n) {
      fail_on_this_thread(n);
      tcpx_code ended = whole(message)();
      failed = stop_failing();
      if (ended != TCPX_OK && (!failed || ended != TCPX_NO_MEMORY))
        TCPX_COMPLAIN("post and wait, allocation {}: {}", n, tcpx_code_name(ended));
      renew();
    }
  TCPX_HOLDS(whole(nullptr)() == TCPX_OK);
  each_allocation(
      "poll", [&] { return tcpx_poll(transfer); }, nothing);
  // Not the two that give JSON: the library that makes it allocates in its destructors.
  tcpx_receipt receipt{};
  each_allocation(
      "receipt", [&] { return tcpx_receipt_get(transfer, &receipt); }, nothing);
  for (int64_t n = 1, failed = 1; failed && complaints() == 0; ++n) {
    fail_on_this_thread(n);
    tcpx_code told = tcpx_notify(e, target.id, "hi", 2, kLong.count());
    failed = stop_failing();
    TCPX_HOLDS(told == TCPX_OK || (failed && told == TCPX_NO_MEMORY));
    renew();
  }
  // What is wrong with a call needs memory to be said, too.
  fail_on_this_thread(1);
  tcpx_code code = tcpx_poll(nullptr);
  TCPX_HOLDS(stop_failing());
  TCPX_HOLDS(code == TCPX_NO_MEMORY);
  TCPX_HOLDS(std::strcmp(tcpx_last_error(), "out of memory") == 0);
  // Fences: those that fail may be tried again, those that cannot say so do not fail.
  for (int64_t n = 1, failed = 1; failed; ++n) {
    TCPX_HOLDS(tcpx_post(transfer, nullptr) == TCPX_OK);
    fail_on_this_thread(n);
    code = tcpx_cancel(transfer, kLong.count());
    failed = stop_failing();
    TCPX_HOLDS(code == TCPX_OK || (failed && code == TCPX_NO_MEMORY));
    TCPX_HOLDS(tcpx_cancel(transfer, kLong.count()) == TCPX_OK ||
               tcpx_peer_wait(e, target.id, 0) != TCPX_OK);
    TCPX_HOLDS(tcpx_poll(transfer) != TCPX_IN_PROGRESS);
    renew();
  }
  for (int64_t n = 1, failed = 1; failed; ++n) {
    TCPX_HOLDS(tcpx_post(transfer, nullptr) == TCPX_OK);
    fail_on_this_thread(n);
    tcpx_release(transfer);
    failed = stop_failing();
    transfer = nullptr;
    renew();
    if (transfer == nullptr) TCPX_HOLDS(prepare() == TCPX_OK);
  }
  tcpx_release(transfer);
  // The end of an engine cannot fail.
  for (int64_t n = 1, failed = 1; failed; ++n) {
    TCPX_HOLDS(tcpx_engine_create(&lo, 1, nullptr, nullptr, &made) == TCPX_OK);
    tcpx_peer peer = 0;
    TCPX_HOLDS(tcpx_connect(made, target.info.data(), target.info.size(), &peer) == TCPX_OK);
    TCPX_HOLDS(tcpx_peer_wait(made, peer, kLong.count()) == TCPX_OK);
    fail_on_this_thread(n);
    tcpx_engine_destroy(made);
    failed = stop_failing();
  }
  return complaints();
}

// OpenSSL's own, which throw nothing.
TCPX_CHILD(openssl) {
  TCPX_HOLDS(fail_openssl_too());
  exempt_this_thread();
  Target target(1);
  Engine engine = make_engine(options());
  Local local = make_local(engine, kBytes, kReadWrite, 9);
  tcpx_engine* e = engine.raw();
  uint8_t buffer[4096];
  size_t length = 0;
  each_allocation(
      "connect",
      [&] { return tcpx_connect(e, target.info.data(), target.info.size(), &target.id); },
      [&] {
        TCPX_HOLDS(tcpx_peer_wait(e, target.id, kLong.count()) == TCPX_OK);
        TCPX_HOLDS(tcpx_disconnect(e, target.id) == TCPX_OK);
      });
  tcpx_region region = 0;
  each_allocation(
      "register", [&] { return tcpx_register(e, buffer, sizeof buffer, 0, &region); },
      [&] { TCPX_HOLDS(tcpx_deregister(e, region) == TCPX_OK); });
  each_allocation(
      "export",
      [&] { return length = sizeof buffer, tcpx_region_export(e, local.region, buffer, &length); },
      [] {});
  tcpx_remote_region described{};
  each_allocation(
      "import", [&] { return tcpx_region_import(buffer, length, &described); }, [] {});
  return complaints();
}

// The first call of a thread, in a process that has no memory left at all.
TCPX_CHILD(first_call) {
  std::thread([] {
    std::free(std::malloc(1));  // from now on this thread has an arena
    rlimit none{1, 1};
    ::setrlimit(RLIMIT_AS, &none);
    for (size_t size = 1 << 20; size >= 16; size /= 2)
      while (std::malloc(size) != nullptr) continue;
    tcpx_code code = tcpx_poll(nullptr);
    ::_exit(code == TCPX_NO_MEMORY || code == TCPX_INVALID_ARGUMENT ? 0 : 1);
  }).join();
  return 1;
}

TEST(NoMemory, AThreadsFirstCallIsAnswered) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer needs memory of its own";
  EXPECT_EQ(run_child("first_call", patience(20'000)), "");
}

TEST(NoMemory, OnACallersThreadIsAnAnswer) {
  EXPECT_EQ(run_child("callers", patience(100'000)), "");
}

TEST(NoMemory, InOpenSslIsAnAnswer) {
  EXPECT_EQ(run_child("openssl", patience(100'000)), "");
}

TEST(NoMemory, OnALibraryThreadCostsItsPeerAlone) {
  EXPECT_EQ(run_child("library_threads", patience(100'000)), "");
}

}  // namespace
}  // namespace tcpx::test
