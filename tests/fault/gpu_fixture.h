// Two engines of this process with memory of GPUs, on the fake driver, which does what a plan says.
#pragma once

#include <functional>
#include <optional>

#include "../support/fake_cuda.h"
#include "fault_fixture.h"

namespace tcpx::test {

class GpuFault : public ::testing::Test {
 protected:
  static constexpr uint64_t kBytes = 2 << 20;
  static constexpr uint64_t kPiece = 4096;
  static constexpr uint64_t kAfter = 0xfe;  // iteration of the patterns that come after an end

  void SetUp() override {
    if (fake_cuda() == nullptr) GTEST_SKIP() << "needs the fake driver's plan";
    order_operations();
    all_well();
  }
  void TearDown() override {
    if (fake_cuda() == nullptr) return;
    all_well();
    pair.reset();
    for (int device : lost_) reset(device);
  }
  static void all_well() {
    fake_cuda()->clear_plan();
    fake_cuda()->release();
  }
  static void plan(const std::string& entries) { ASSERT_TRUE(fake_cuda()->plan(entries.c_str())); }
  void lose(int device, int code) {
    lost_.push_back(device);
    fake_cuda()->lose_context(device, code);
  }

  // Memory of these kinds, all of it prepared, and host memory beside it that must not notice.
  void start(const std::string& kind_a, const std::string& kind_b, const Options& more = {},
             const Options& more_b = {}) {
    pair.emplace(fault_options(merged(more, {{"lanes", "2"},
                                             {"chunk_bytes", "256K"},
                                             {"peer_timeout", time_option(10'000)},
                                             {"lane_timeout", time_option(5'000)}})),
                 more_b);
    pair->memory_a = make_local(pair->a, kBytes, 0, 1, kind_a);
    pair->memory_b = make_local(pair->b, kBytes, kReadWrite, 2, kind_b);
    pair->remote_b = describe(pair->b, pair->memory_b.region);
    host_a_ = make_local(pair->a, kBytes, 0, 3, "host");
    host_b_ = make_local(pair->b, kBytes, kReadWrite, 4, "host");
    host_remote_ = describe(pair->b, host_b_.region);
    expect_works("before");
  }
  // All of the memory in one piece, or every other page of it in a piece of its own.
  Transfer prepare(tcpx_op op, bool scattered = false) {
    if (!scattered) return pair->prepare(op, kBytes);
    std::vector<tcpx_local_piece> local;
    std::vector<tcpx_remote_piece> remote;
    for (uint64_t at = 0; at < kBytes; at += 2 * kPiece) {
      local.push_back({pair->memory_a.region, at, kPiece});
      remote.push_back({&pair->remote_b, at, kPiece});
    }
    Transfer transfer;
    Result result = pair->a.prepare(pair->b_at_a, op, local, remote, &transfer);
    if (!result) throw std::runtime_error("prepare: " + result.text());
    return transfer;
  }
  Local& source(tcpx_op op) { return op == TCPX_WRITE ? pair->memory_a : pair->memory_b; }
  Local& target(tcpx_op op) { return op == TCPX_WRITE ? pair->memory_b : pair->memory_a; }

  // With fresh content, which arrives.
  void expect_moves(tcpx_op op, bool scattered = false) {
    fill(*source(op).memory, 0, kBytes, Pattern(50, ++round_), 0);
    Transfer transfer = prepare(op, scattered);
    ASSERT_TRUE(succeeded(transfer.post()));
    ASSERT_TRUE(succeeded(transfer.wait(kLong))) << transfer.error();
    expect_content(op, scattered);
  }
  void expect_content(tcpx_op op, bool scattered) {
    const uint64_t length = scattered ? kPiece : kBytes, step = scattered ? 2 * kPiece : kBytes;
    for (uint64_t at = 0; at < kBytes; at += step)
      ASSERT_EQ(mismatch(*target(op).memory, at, length, Pattern(50, round_), at), -1)
          << "from byte " << at << " on";
  }
  void expect_works(const char* when) {
    SCOPED_TRACE(when);
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ})
      for (bool scattered : {false, true}) expect_moves(op, scattered);
    expect_host_works();
  }
  ::testing::AssertionResult host_moves(tcpx_op op, uint64_t bytes = kBytes) {
    Transfer transfer;
    Result result = pair->a.prepare(pair->b_at_a, op, {{host_a_.region, 0, bytes}},
                                    {{&host_remote_, 0, bytes}}, &transfer);
    if (result) result = transfer.post();
    if (result) result = transfer.wait(kLong);
    return succeeded(result);
  }
  void expect_host_works() {
    fill(*host_a_.memory, 0, kBytes, Pattern(60, ++round_), 0);
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ}) ASSERT_TRUE(host_moves(op));
    ASSERT_EQ(mismatch(*host_b_.memory, 0, kBytes, Pattern(60, round_), 0), -1);
  }
  void expect_all_lanes() {
    tcpx_peer_info info{};
    ASSERT_TRUE(succeeded(pair->a.peer_info(pair->b_at_a, &info)));
    EXPECT_EQ(info.lanes, 2u) << "no lane is lost";
  }
  // It has failed as a copy does, and says what CUDA said.
  void expect_copy_failed(Transfer& transfer, const std::string& text) {
    Stopwatch watch;
    ASSERT_EQ(transfer.wait(kLong).code(), TCPX_COPY_FAILED) << transfer.error();
    EXPECT_LT(watch.elapsed(), patience(2'000));
    if (!text.empty()) {
      EXPECT_NE(transfer.error().find(text), std::string::npos) << transfer.error();
    }
  }
  // Owns the memory from now on: fills it and sees whether anything else writes there.
  static void expect_ours(Memory& memory, uint64_t seed, Ms time) {
    Pattern sentinel(seed, kAfter);
    fill(memory, 0, memory.size(), sentinel, 0);
    Stopwatch watch;
    do {
      ASSERT_EQ(mismatch(memory, 0, memory.size(), sentinel, 0), -1)
          << "a foreign byte landed " << watch.elapsed().count() << " ms later";
    } while (watch.elapsed() < time);
  }
  // Nobody read the source after it was filled with it.
  static void expect_no_trace(const Memory& memory, uint64_t seed) {
    ASSERT_EQ(first_trace(memory, Pattern(seed, kAfter)), memory.size())
        << "memory that was given back was read";
  }

  Local host_a_, host_b_;
  std::optional<Pair> pair;

 private:
  void reset(int device) {
    Aside aside;
    cuda().function<int(int)>("cuDevicePrimaryCtxReset_v2")(device);
    forget_cuda_device(device);
  }

  tcpx_remote_region host_remote_{};
  std::vector<int> lost_;
  uint64_t round_ = 0;
};

// What moves, and at which end memory is a GPU's.
struct GpuCase {
  tcpx_op op;
  bool at_initiator;
  bool scattered;

  const char* kind_a() const { return at_initiator ? "cuda" : "host"; }
  const char* kind_b() const { return at_initiator ? "host" : "cuda"; }
  // Out of the GPU's memory, or into it.
  bool out() const { return (op == TCPX_WRITE) == at_initiator; }
  const char* copy() const { return out() ? "cuMemcpyDtoHAsync_v2" : "cuMemcpyHtoDAsync_v2"; }
  const char* call() const { return scattered ? "cuLaunchKernel" : copy(); }
};
inline void PrintTo(const GpuCase& c, std::ostream* out) {
  *out << (c.op == TCPX_WRITE ? "Write" : "Read") << (c.at_initiator ? "Initiator" : "Owner")
       << (c.scattered ? "Scattered" : "");
}
inline std::vector<GpuCase> gpu_cases(bool with_scattered) {
  std::vector<GpuCase> out;
  for (tcpx_op op : {TCPX_WRITE, TCPX_READ})
    for (bool at_initiator : {true, false})
      for (bool scattered : {false, true})
        if (with_scattered || !scattered) out.push_back({op, at_initiator, scattered});
  return out;
}

}  // namespace tcpx::test
