// Placing is asynchronous: "done" and the fences wait for it. A GPU event will stand where this
// placer counts polls.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "core_pair.h"

namespace tcpx {
namespace {

// Payload lands in one of a few staging buffers; the copy into place happens only once a chunk has
// been polled `delay` after its start, or not at all while `held`.
class SlowPlacer final : public Placer {
 public:
  SlowPlacer(size_t buffers, Nanos delay) : delay_(delay) {
    for (size_t i = 0; i < buffers; ++i) {
      storage_.emplace_back(1 << 20, 0xEE);
      free_.push_back(storage_.back().data());
    }
  }
  bool stages() const override { return true; }
  uint8_t* acquire(uint64_t bytes) override {
    std::lock_guard lock(mu_);
    EXPECT_LE(bytes, 1u << 20);
    if (free_.empty()) {
      ++starved;
      return nullptr;
    }
    uint8_t* out = free_.back();
    free_.pop_back();
    return out;
  }
  uint64_t start(const uint8_t* staging, std::span<const iovec> destination) override {
    std::lock_guard lock(mu_);
    jobs_[++last_] = {staging, destination, now_ns() + delay_};
    started = last_;
    return last_;
  }
  bool finished(uint64_t ticket) override {
    std::lock_guard lock(mu_);
    auto job = jobs_.find(ticket);
    if (job == jobs_.end()) return true;
    if (held || now_ns() < job->second.ready) return false;
    const uint8_t* from = job->second.staging;
    for (const iovec& part : job->second.destination) {
      memcpy(part.iov_base, from, part.iov_len);
      from += part.iov_len;
    }
    jobs_.erase(job);
    ++placed;
    return true;
  }
  void release(uint8_t* staging) override {
    std::lock_guard lock(mu_);
    free_.push_back(staging);
  }

  // Orders what the caller did before against later placings, and earlier placings against what it
  // does next. The engines order them through a socket, which ThreadSanitizer does not see.
  void sync() { std::lock_guard lock(mu_); }

  std::atomic<bool> held{false};
  std::atomic<uint64_t> started{0}, placed{0}, starved{0};

 private:
  struct Job {
    const uint8_t* staging;
    std::span<const iovec> destination;
    Nanos ready;
  };
  const Nanos delay_;
  std::mutex mu_;
  std::deque<std::vector<uint8_t>> storage_;
  std::vector<uint8_t*> free_;
  std::map<uint64_t, Job> jobs_;
  uint64_t last_ = 0;
};

uint8_t pattern(size_t i, int round) {
  return static_cast<uint8_t>((i * 0x9E3779B97F4A7C15ull >> 29) ^ static_cast<size_t>(round * 37));
}

// `target` places slowly what is written to it; `source` places slowly what it reads.
struct SlowPair {
  SlowPlacer source_placer, target_placer;
  CorePair engines;
  std::vector<uint8_t>&local, &remote;
  std::unique_ptr<EngineCore>& target;
  uint64_t& remote_region;

  SlowPair(size_t bytes, size_t buffers, Nanos delay)
      : source_placer(buffers, delay),
        target_placer(buffers, delay),
        engines(bytes, &source_placer, &target_placer),
        local(engines.local),
        remote(engines.remote),
        target(engines.target),
        remote_region(engines.remote_region) {}
  std::shared_ptr<TransferState> post(tcpx_op op) {
    auto transfer = engines.prepare(op);
    sync();
    engines.post(transfer);
    return transfer;
  }
  void sync() {
    source_placer.sync();
    target_placer.sync();
  }
};

TEST(SlowPlacer, WriteIsNotDoneBeforeItsBytesArePlaced) {
  SlowPair pair(256 << 10, 8, 0);
  for (size_t i = 0; i < pair.local.size(); ++i) pair.local[i] = pattern(i, 1);
  std::fill(pair.remote.begin(), pair.remote.end(), 0xAA);
  pair.target_placer.held = true;
  auto transfer = pair.post(TCPX_WRITE);
  transfer->peer->wait(*transfer, now_ns() + 300 * kMilli);
  EXPECT_TRUE(transfer->in_progress()) << "done was reported before the bytes were in place";
  EXPECT_EQ(pair.target_placer.placed, 0u);
  EXPECT_EQ(pair.remote[0], 0xAA);
  pair.target_placer.held = false;
  transfer->peer->wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
  pair.sync();
  EXPECT_EQ(pair.remote, pair.local);
}

TEST(SlowPlacer, ReadIsNotDoneBeforeItsBytesArePlaced) {
  SlowPair pair(256 << 10, 8, 0);
  for (size_t i = 0; i < pair.remote.size(); ++i) pair.remote[i] = pattern(i, 2);
  std::fill(pair.local.begin(), pair.local.end(), 0xAA);
  pair.source_placer.held = true;
  auto transfer = pair.post(TCPX_READ);
  transfer->peer->wait(*transfer, now_ns() + 300 * kMilli);
  EXPECT_TRUE(transfer->in_progress());
  EXPECT_EQ(pair.local[0], 0xAA);
  pair.source_placer.held = false;
  transfer->peer->wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
  pair.sync();
  EXPECT_EQ(pair.remote, pair.local);
}

TEST(SlowPlacer, TwoStagingBuffersHoldUpTheLaneAndNothingIsLost) {
  SlowPair pair(4 << 20, 2, 200 * kMicro);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < pair.local.size(); ++i) pair.local[i] = pattern(i, round);
    std::fill(pair.remote.begin(), pair.remote.end(), 0xAA);
    auto transfer = pair.post(TCPX_WRITE);
    transfer->peer->wait(*transfer, now_ns() + 20 * kSecond);
    ASSERT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
    pair.sync();
    ASSERT_EQ(pair.remote, pair.local) << "round " << round;
  }
  EXPECT_GT(pair.target_placer.starved, 0u) << "the test did not run out of staging";
}

TEST(SlowPlacer, DeregisterWaitsForPlacingsThatCannotBeCalledBack) {
  SlowPair pair(256 << 10, 8, 0);
  pair.target_placer.held = true;
  auto transfer = pair.post(TCPX_WRITE);
  for (int i = 0; i < 2000 && pair.target_placer.started == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_GT(pair.target_placer.started, 0u);
  std::atomic<bool> returned{false};
  std::thread deregister([&] {
    EXPECT_TRUE(pair.target->deregister(pair.remote_region).ok());
    returned = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(returned) << "the fence opened while bytes were still being placed";
  pair.target_placer.held = false;
  deregister.join();
  std::vector<uint8_t> after = pair.remote;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(pair.remote, after);
  transfer->peer->wait(*transfer, now_ns() + 10 * kSecond);
  EXPECT_FALSE(transfer->in_progress());
}

TEST(SlowPlacer, CancelOfAReadWaitsForPlacingsThatCannotBeCalledBack) {
  SlowPair pair(256 << 10, 8, 0);
  pair.source_placer.held = true;
  auto transfer = pair.post(TCPX_READ);
  for (int i = 0; i < 2000 && pair.source_placer.started == 0; ++i) {
    transfer->peer->poll(*transfer);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::thread let_go([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    pair.source_placer.held = false;
  });
  Status status = transfer->peer->cancel(transfer, now_ns() + 10 * kSecond);
  EXPECT_FALSE(pair.source_placer.held) << "cancel returned while a placing was under way";
  EXPECT_TRUE(status.ok()) << status.to_string();
  let_go.join();
  std::vector<uint8_t> after = pair.local;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(pair.local, after);
  EXPECT_EQ(transfer->code.load(), TCPX_CANCELLED);
}

}  // namespace
}  // namespace tcpx
