// Memory that is unmapped while it is registered: the transfer ends and names it, the session goes
// on.
#include <sys/mman.h>

#include <mutex>

#include "fault_fixture.h"

namespace tcpx::test {
namespace {

// Pages that can be taken away.
class Pages {
 public:
  explicit Pages(uint64_t size) : size_(size) {
    address_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~Pages() { ::munmap(address_, size_); }
  uint8_t* data() const { return static_cast<uint8_t*>(address_); }
  uint64_t size() const { return size_; }
  // No access: as good as unmapped to the kernel, and nobody else gets the place.
  void take(uint64_t offset) { ::mprotect(data() + offset, size_ - offset, PROT_NONE); }

 private:
  const uint64_t size_;
  void* address_ = nullptr;
};

struct Where {
  uint64_t size, taken_from;
};

std::string name_of(const std::tuple<tcpx_op, bool, Where>& param) {
  const Where& where = std::get<2>(param);
  return std::string(std::get<0>(param) == TCPX_WRITE ? "WRITE" : "READ") +
         (std::get<1>(param) ? "_here_" : "_at_the_peer_") +
         (where.size == 4096      ? "4KiB"
          : where.taken_from == 0 ? "64MiB"
                                  : "half_of_64MiB");
}

class Unmapped : public ::testing::TestWithParam<std::tuple<tcpx_op, bool, Where>> {
 protected:
  Engine::Log keep_lines() {
    return [this](tcpx_log_level, const char* line) {
      std::lock_guard lock(mu_);
      lines_ += std::string(line) + "\n";
    };
  }
  std::string lines() {
    std::lock_guard lock(mu_);
    return lines_;
  }
  std::mutex mu_;
  std::string lines_;
};

TEST_P(Unmapped, EndsTheTransferAndNamesTheMemory) {
  if (std::getenv("TCPX_TEST_NET_PLUGIN") != nullptr)
    GTEST_SKIP() << "a net plugin reads and writes memory itself";
  auto [op, ours, where] = GetParam();
  Pages here(where.size), there(where.size);
  Pattern(1).fill(here.data(), where.size, 0);
  Pattern(2).fill(there.data(), where.size, 0);
  Engine a = make_engine(fault_options({{"lanes", "2"}}), keep_lines());
  Engine b = make_engine(fault_options({{"lanes", "2"}}), keep_lines());
  Local fine_a = make_local(a, 1 << 20, 0, 3), fine_b = make_local(b, 1 << 20, kReadWrite, 4);
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(a.connect(b.connection_info(), &peer)));
  ASSERT_TRUE(succeeded(a.peer_wait(peer, kLong)));
  tcpx_region local = 0, remote = 0;
  ASSERT_TRUE(succeeded(a.register_memory(here.data(), where.size, 0, &local)));
  ASSERT_TRUE(succeeded(b.register_memory(there.data(), where.size, kReadWrite, &remote)));
  tcpx_remote_region described = describe(b, remote), fine = describe(b, fine_b.region);
  Transfer transfer;
  ASSERT_TRUE(succeeded(
      a.prepare(peer, op, {{local, 0, where.size}}, {{&described, 0, where.size}}, &transfer)));
  (ours ? here : there).take(where.taken_from);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(succeeded(transfer.post()));
    Result result = transfer.wait(kLong);
    EXPECT_EQ(result.code(), TCPX_MEMORY_GONE) << result.name() << ": " << transfer.error();
    std::string told = ours ? transfer.error() : lines();
    EXPECT_NE(told.find("not mapped any more"), std::string::npos) << told;
    EXPECT_NE(told.find(strf("{} bytes from {}", where.size,
                             static_cast<void*>((ours ? here : there).data()))),
              std::string::npos)
        << told;
  }
  // The same session, both ways, right behind it.
  for (tcpx_op next : {TCPX_WRITE, TCPX_READ}) {
    Transfer second;
    ASSERT_TRUE(succeeded(
        a.prepare(peer, next, {{fine_a.region, 0, 1 << 20}}, {{&fine, 0, 1 << 20}}, &second)));
    ASSERT_TRUE(succeeded(second.post()));
    ASSERT_TRUE(succeeded(second.wait(kLong))) << second.error();
    EXPECT_EQ(second.receipt().lanes_lost, 0u);
  }
  EXPECT_EQ(mismatch(*fine_b.memory, 0, 1 << 20, Pattern(3), 0), -1);
  EXPECT_EQ(mismatch(*fine_a.memory, 0, 1 << 20, Pattern(3), 0), -1);
  tcpx_peer_info info{};
  ASSERT_TRUE(succeeded(a.peer_info(peer, &info)));
  EXPECT_EQ(info.lanes, 2u);
  EXPECT_EQ(counter(a, "lanes_lost") + counter(b, "lanes_lost"), 0u);
  transfer.release();
  a.destroy();
  b.destroy();
}

INSTANTIATE_TEST_SUITE_P(Both, Unmapped,
                         ::testing::Combine(::testing::Values(TCPX_WRITE, TCPX_READ),
                                            ::testing::Bool(),
                                            ::testing::Values(Where{4096, 0}, Where{64 << 20, 0},
                                                              Where{64 << 20, (33 << 20) + 4096})),
                         [](const auto& each) { return name_of(each.param); });

}  // namespace
}  // namespace tcpx::test
