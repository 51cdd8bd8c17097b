// A thread of the engine in a page fault that is not answered (userfaultfd, a dead network file
// system): nothing can call it back, and no fence may say that it has.
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <future>

#include "fault_fixture.h"

namespace tcpx::test {
namespace {

// Memory without pages. Whoever touches it waits until it is filled.
class Unanswered {
 public:
  explicit Unanswered(uint64_t size) : size_(size) {
    memory_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC));
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register range{};
    range.range = {reinterpret_cast<uint64_t>(memory_), size};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    ok_ = fd_ >= 0 && ::ioctl(fd_, UFFDIO_API, &api) == 0 &&
          ::ioctl(fd_, UFFDIO_REGISTER, &range) == 0;
  }
  ~Unanswered() {
    ::close(fd_);
    ::munmap(memory_, size_);
  }
  bool ok() const { return ok_; }
  uint8_t* data() const { return static_cast<uint8_t*>(memory_); }
  void fill(uint8_t value) {
    std::vector<uint8_t> bytes(size_, value);
    uffdio_copy copy{};
    copy.dst = reinterpret_cast<uint64_t>(memory_);
    copy.src = reinterpret_cast<uint64_t>(bytes.data());
    copy.len = size_;
    EXPECT_EQ(::ioctl(fd_, UFFDIO_COPY, &copy), 0);
  }

 private:
  const uint64_t size_;
  void* memory_ = nullptr;
  int fd_ = -1;
  bool ok_ = false;
};

constexpr uint64_t kBytes = 4 << 20;
constexpr Ms kLongerThanAFence = patience(2'000);

// READs: a WRITE is sent by whoever posts it, who then waits for its own memory.
class PageFault : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("TCPX_TEST_NET_PLUGIN") != nullptr)
      GTEST_SKIP() << "a net plugin reads and writes memory itself";
    if (!memory.ok()) GTEST_SKIP() << "this process may not use userfaultfd";
    ASSERT_TRUE(succeeded(engine.register_memory(memory.data(), kBytes, 0, &region)));
    tcpx_peer id = 0;
    ASSERT_TRUE(succeeded(engine.connect(target.program.info(), &id)));
    ASSERT_TRUE(succeeded(engine.peer_wait(id, kLong)));
    ASSERT_TRUE(succeeded(engine.prepare(id, TCPX_READ, {{region, 0, kBytes}},
                                         {{&target.memory, 0, kBytes}}, &transfer)));
    // The data comes when this thread is out of the engine: the engine's own takes it.
    target.program.freeze();
    ASSERT_TRUE(succeeded(transfer.post()));
    target.program.thaw();
    std::this_thread::sleep_for(patience(200));
  }
  // The fence that has returned was one.
  void expect_memory_left_alone() {
    std::vector<uint8_t> bytes(kBytes);
    Pattern(60).fill(bytes.data(), kBytes, 0);
    memcpy(memory.data(), bytes.data(), kBytes);
    std::this_thread::sleep_for(patience(300));
    EXPECT_EQ(memcmp(memory.data(), bytes.data(), kBytes), 0) << "bytes came after the fence";
  }

  ProcessTarget target{kBytes};  // before there are threads: it forks
  Unanswered memory{kBytes};
  Engine engine = make_engine(fault_options());
  tcpx_region region = 0;
  Transfer transfer;
};

TEST_F(PageFault, IsWaitedForByARelease) {
  auto released = std::async(std::launch::async, [&] { transfer.release(); });
  EXPECT_EQ(released.wait_for(kLongerThanAFence), std::future_status::timeout)
      << "a thread of the engine still had the memory";
  memory.fill(0xee);
  ASSERT_EQ(released.wait_for(kLong), std::future_status::ready);
  expect_memory_left_alone();
}

TEST_F(PageFault, IsToldByACancelWhichCanBeCalledAgain) {
  Stopwatch watch;
  Result result = transfer.cancel(patience(500));
  EXPECT_LT(watch.elapsed(), kLongerThanAFence);
  EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
  EXPECT_NE(result.text().find("do not free it"), std::string::npos) << result.text();
  EXPECT_EQ(result.text().find("plugin"), std::string::npos) << result.text();
  memory.fill(0xee);
  EXPECT_TRUE(succeeded(transfer.cancel(kLong)));
  expect_memory_left_alone();
}

TEST_F(PageFault, IsToldByADeregisterWhichCanBeCalledAgain) {
  std::thread later([&] {
    std::this_thread::sleep_for(kLongerThanAFence);
    memory.fill(0xee);
  });
  Result result = engine.deregister(region);
  for (Stopwatch watch; !result && watch.elapsed() < kLong;) result = engine.deregister(region);
  EXPECT_TRUE(succeeded(result));
  expect_memory_left_alone();
  later.join();
}

}  // namespace
}  // namespace tcpx::test
