// The environment is read when an engine is made, never while it moves data: this binary's getenv
// counts.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "../support/engines.h"

namespace {
std::atomic<uint64_t> asked{0};
}

extern "C" char* getenv(const char* name) noexcept {
  asked.fetch_add(1, std::memory_order_relaxed);
  size_t length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
      return *entry + length + 1;
  return nullptr;
}

namespace tcpx::test {
namespace {

class NoGetenv : public ::testing::TestWithParam<const char*> {};

TEST_P(NoGetenv, InTheDataPath) {
  asked = 0;
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
  bool net = std::strcmp(GetParam(), "net") == 0;
  Pair pair(loopback_options(
      net ? Options{{"net_plugin", TCPX_TEST_EMULATOR_PATH}, {"require_path", "net"}} : Options{}));
  EXPECT_GT(asked, 0u) << "the environment of an engine, and of its plugin, was read elsewhere";
  pair.allocate(1 << 20);
  auto move = [&](int rounds) {
    for (int round = 0; round < rounds; ++round)
      for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) {
        Transfer transfer = pair.prepare(op, 1 << 20);
        ASSERT_TRUE(succeeded(transfer.post_notify("n")));
        while (transfer.poll().code() == TCPX_IN_PROGRESS) continue;
        ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
        Notification notification;
        ASSERT_TRUE(succeeded(pair.b.next_notification(&notification, kLong)));
      }
  };
  move(2);
  asked = 0;
  move(20);
  EXPECT_EQ(asked, 0u);
  (void)std::getenv("HOME");
  EXPECT_EQ(asked, 1u) << "nothing was counted";
}

INSTANTIATE_TEST_SUITE_P(Paths, NoGetenv, ::testing::Values("tcp", "net"),
                         [](auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace tcpx::test
