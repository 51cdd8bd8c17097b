// What a process may do to a backend: have no thread left for it, or fork.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent.h"
#include "support/failing_threads.h"

namespace tcpx_nixl::test {
namespace {

using tcpx::test::eventually;
using tcpx::test::fail_threads;
using tcpx::test::patience;
using tcpx::test::stop_failing_threads;
using tcpx::test::Stopwatch;

constexpr size_t kSize = 1 << 20;

// Goodbyes are said on threads; without one, whoever asked for it waits.
TEST(NixlBackend, GoodbyesWithoutAThread) {
  Range at_a(kSize), at_b(kSize);
  Agent a("a"), b("b");
  a.add(at_a);
  b.add(at_b);
  a.know(b);
  a.load(b, at_b);
  at_a.fill(1, 0, kSize);
  EXPECT_EQ(Request(a, NIXL_WRITE, {at_a}, "b", {at_b}, kSize).run(), NIXL_SUCCESS);
  a.unload("b");
  fail_threads(1, 1000);
  Stopwatch watch;
  EXPECT_EQ(a->disconnect("b"), NIXL_SUCCESS);
  EXPECT_LT(watch.elapsed(), patience(5'000));
  EXPECT_TRUE(stop_failing_threads()) << "no thread was asked for";
  a.know(b);
  a.load(b, at_b);
  EXPECT_EQ(Request(a, NIXL_WRITE, {at_a}, "b", {at_b}, kSize).run(), NIXL_SUCCESS);
  EXPECT_TRUE(at_b.holds(1, 0, kSize));
}

// An engine for which there is no thread is refused, not thrown into the core.
TEST(NixlBackend, NoEngineWithoutThreads) {
  fail_threads(1, 1000);
  EXPECT_THROW(Agent("none"), std::runtime_error);
  EXPECT_TRUE(stop_failing_threads());
}

// In the child every call has an answer, the end included, and the parent notices nothing.
TEST(NixlBackend, Forked) {
  Range at_a(kSize), at_b(kSize);
  auto a = std::make_unique<Agent>("a");
  Agent b("b");
  a->add(at_a);
  b.add(at_b);
  a->know(b);
  a->load(b, at_b);
  at_a.fill(1, 0, kSize);
  auto write = std::make_unique<Request>(*a, NIXL_WRITE, Place{at_a}, "b", Place{at_b}, kSize);
  EXPECT_EQ(write->run(), NIXL_SUCCESS);
  EXPECT_EQ(write->post(), NIXL_IN_PROG);
  pid_t child = ::fork();
  if (child == 0) {
    int wrong = 0;
    nixlBackendEngine& engine = *a->operator->();
    std::string text;
    notif_list_t list;
    wrong += engine.getConnInfo(text) != NIXL_ERR_NOT_SUPPORTED;
    wrong += engine.connect("b") != NIXL_ERR_NOT_SUPPORTED;
    wrong += engine.disconnect("b") != NIXL_ERR_NOT_SUPPORTED;
    wrong += engine.getNotifs(list) != NIXL_ERR_NOT_SUPPORTED;
    wrong += engine.genNotif("b", "x") != NIXL_ERR_NOT_SUPPORTED;
    wrong += write->check() != NIXL_ERR_NOT_SUPPORTED;
    wrong += write->post() != NIXL_ERR_NOT_SUPPORTED;
    write.reset();
    a.reset();  // as a garbage collector would
    Agent own("own");
    ::_exit(wrong);
  }
  int status = 0;
  if (!eventually([&] { return ::waitpid(child, &status, WNOHANG) == child; })) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    ADD_FAILURE() << "the child hangs";
  }
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(write->wait(), NIXL_SUCCESS);
  EXPECT_EQ(write->run(), NIXL_SUCCESS);
  EXPECT_TRUE(at_b.holds(1, 0, kSize));
}

}  // namespace
}  // namespace tcpx_nixl::test
