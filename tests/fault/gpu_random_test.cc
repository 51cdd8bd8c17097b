// Transfers of host memory and of two GPUs, mixed piece by piece, from both sides at once, over
// several lanes, while copies take as long as chance has it, now and then one hangs or the driver's
// lock is held; they are cancelled and lose their memory in between. What arrives is right, nothing
// lands after a fence, and nothing hangs.
#include <array>

#include "gpu_fixture.h"

namespace tcpx::test {
namespace {

constexpr std::array kKinds = {"host", "cuda:0", "cuda:1"};
constexpr uint64_t kEach = 384 << 10;
constexpr size_t kAtOnce = 6;

struct Side {
  Engine* engine;
  tcpx_peer peer;
  std::array<Local, kKinds.size()> memory;
  std::array<tcpx_remote_region, kKinds.size()> described{};
};

struct Part {
  size_t from_kind, to_kind;
  uint64_t from, to, length;
};

// One transfer and the memory that is its own, at both sides.
struct Lot {
  Side sides[2];
  int initiator = 0;
  tcpx_op op = TCPX_WRITE;
  std::vector<Part> parts;
  Transfer transfer;
  uint64_t number = 0;  // of the content
  bool fenced = false;

  Side& source() { return sides[op == TCPX_WRITE ? initiator : 1 - initiator]; }
  Side& target() { return sides[op == TCPX_WRITE ? 1 - initiator : initiator]; }
  static Pattern content(uint64_t number, size_t kind) { return Pattern(300 + kind, number); }
  static Pattern poison(uint64_t number, size_t kind) { return Pattern(400 + kind, number); }
};

class GpuRandom : public GpuFault, public ::testing::WithParamInterface<uint64_t> {
 protected:
  void SetUp() override {
    GpuFault::SetUp();
    if (IsSkipped()) return;
    pair.emplace(random_options(), random_options());
    for (Lot& lot : lots_) {
      lot.sides[0] = {&pair->a, pair->b_at_a, {}, {}};
      lot.sides[1] = {&pair->b, pair->a_at_b, {}, {}};
      for (Side& side : lot.sides)
        for (size_t kind = 0; kind < kKinds.size(); ++kind) {
          side.memory[kind] = make_local(*side.engine, kEach, kReadWrite, 1, kKinds[kind]);
          side.described[kind] = describe(*side.engine, side.memory[kind].region);
        }
    }
  }
  void TearDown() override {
    GpuFault::TearDown();
    for (Lot& lot : lots_) lot.transfer = {};
  }
  template <size_t N>
  const char* one_of(const char* const (&choices)[N]) {
    return choices[rng_.below(N)];
  }
  Options random_options() {
    return fault_options({{"lanes", "3"},
                          {"io_threads", one_of({"1", "2"})},
                          {"chunk_bytes", one_of({"16K", "64K", "300K", "1M"})},
                          {"gpu_staging", one_of({"1M", "2M", "64M"})},
                          {"gpu_slot", one_of({"0", "8K", "64K"})},
                          {"window", one_of({"2", "5", "16"})},
                          {"deadline", time_option(1'000)},
                          {"peer_timeout", time_option(20'000)},
                          {"lane_timeout", time_option(15'000)}});
  }

  // ---- a round ----
  void post(Lot& lot) {
    lot.number = ++numbers_;
    lot.initiator = static_cast<int>(rng_.below(2));
    lot.op = rng_.below(2) == 0 ? TCPX_WRITE : TCPX_READ;
    lot.fenced = false;
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      fill(*lot.source().memory[kind].memory, 0, kEach, Lot::content(lot.number, kind), 0);
      fill(*lot.target().memory[kind].memory, 0, kEach, Lot::poison(lot.number, kind), 0);
    }
    choose_parts(lot);
    std::vector<tcpx_local_piece> local;
    std::vector<tcpx_remote_piece> remote;
    const bool writes = lot.op == TCPX_WRITE;
    Side &here = lot.sides[lot.initiator], &there = lot.sides[1 - lot.initiator];
    for (const Part& part : lot.parts) {
      const size_t here_kind = writes ? part.from_kind : part.to_kind,
                   there_kind = writes ? part.to_kind : part.from_kind;
      local.push_back({here.memory[here_kind].region, writes ? part.from : part.to, part.length});
      remote.push_back({&there.described[there_kind], writes ? part.to : part.from, part.length});
    }
    lot.transfer = {};
    ASSERT_TRUE(succeeded(here.engine->prepare(here.peer, lot.op, local, remote, &lot.transfer)));
    ASSERT_TRUE(succeeded(lot.transfer.post(Ms{120'000})));
  }
  void choose_parts(Lot& lot) {
    uint64_t end[2][kKinds.size()] = {};
    lot.parts.clear();
    const uint64_t longest = rng_.below(3) == 0 ? 200'000 : 20'000;
    for (size_t i = 1 + rng_.below(30); i > 0; --i) {
      Part part{rng_.below(kKinds.size()), rng_.below(kKinds.size()), 0, 0, rng_.below(longest)};
      part.from = end[0][part.from_kind] + rng_.below(100);
      part.to = end[1][part.to_kind] + rng_.below(100);
      if (std::max(part.from, part.to) + part.length > kEach) continue;
      end[0][part.from_kind] = part.from + part.length;
      end[1][part.to_kind] = part.to + part.length;
      lot.parts.push_back(part);
    }
    if (lot.parts.empty()) lot.parts.push_back({0, 1, 0, 0, 1000});
  }
  void disturb() {
    all_well();
    plan(strf("copy_us:{};kernel_us:{}", one_of({"0", "30", "300", "2000", "6000"}),
              one_of({"0", "100", "500"})));
    if (rng_.below(3) == 0) plan(strf("hang:{}", 1 + rng_.below(20)));
    if (rng_.below(4) == 0)
      fake_cuda()->hold_driver_lock(static_cast<unsigned>(10 + rng_.below(60)));
  }
  // A fence that meets a copy which hangs says so, and holds when that is over.
  template <class F>
  void expect_fence(F&& fence) {
    Result result = fence();
    if (result.ok()) return;
    all_well();
    ASSERT_TRUE(succeeded(fence()));
  }
  void end(Lot& lot) {
    const uint64_t way = rng_.below(10);
    std::this_thread::sleep_for(std::chrono::microseconds(rng_.below(8'000)));
    if (way < 3) {
      expect_fence([&] { return lot.transfer.cancel(patience(400)); });
      lot.fenced = true;
    } else if (way < 6) {
      const size_t kind = rng_.below(kKinds.size());
      expect_deregisters(lot.sides[rng_.below(2)], kind);
      all_well();
      const tcpx_code code = lot.transfer.wait(kLong).code();
      EXPECT_TRUE(code == TCPX_OK || code == TCPX_REGION_REVOKED || code == TCPX_STALE_REGION)
          << lot.transfer.error();
      expect_fence([&] { return lot.transfer.cancel(kLong); });
      lot.fenced = true;
    } else {
      if (way < 8) all_well();
      if (!lot.transfer.wait(patience(300)).ok()) all_well();
      ASSERT_TRUE(succeeded(lot.transfer.wait(kLong))) << lot.transfer.error();
      expect_arrived(lot);
    }
  }
  // Nobody writes there any more, and it comes back as other memory.
  void expect_deregisters(Side& side, size_t kind) {
    Local& local = side.memory[kind];
    expect_fence([&] { return side.engine->deregister(local.region); });
    std::vector<uint8_t> before(kEach);
    local.memory->load(0, before.data(), kEach);
    std::this_thread::sleep_for(Ms{rng_.below(10)});
    std::vector<uint8_t> after(kEach);
    local.memory->load(0, after.data(), kEach);
    EXPECT_EQ(before, after) << "it changed after the fence";
    ASSERT_TRUE(succeeded(
        side.engine->register_memory(local.memory->address(), kEach, kReadWrite, &local.region)));
    side.described[kind] = describe(*side.engine, local.region);
  }
  static void expect_arrived(Lot& lot) {
    std::vector<uint8_t> wanted[kKinds.size()], seen(kEach);
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      wanted[kind].resize(kEach);
      Lot::poison(lot.number, kind).fill(wanted[kind].data(), kEach, 0);
    }
    for (const Part& part : lot.parts)
      Lot::content(lot.number, part.from_kind)
          .fill(wanted[part.to_kind].data() + part.to, part.length, part.from);
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      lot.target().memory[kind].memory->load(0, seen.data(), kEach);
      ASSERT_TRUE(seen == wanted[kind]) << kKinds[kind];
    }
  }
  // The memory of those that were fenced is the test's, at both sides.
  void expect_nothing_lands() {
    for (Lot& lot : lots_) {
      for (size_t kind = 0; lot.fenced && kind < kKinds.size(); ++kind) {
        fill(*lot.source().memory[kind].memory, 0, kEach, Pattern(600, lot.number), 0);
        fill(*lot.target().memory[kind].memory, 0, kEach, Pattern(700 + kind, lot.number), 0);
      }
    }
    std::this_thread::sleep_for(Ms{10});
    for (Lot& lot : lots_) {
      for (size_t kind = 0; lot.fenced && kind < kKinds.size(); ++kind) {
        const Pattern ours(700 + kind, lot.number);
        ASSERT_EQ(mismatch(*lot.target().memory[kind].memory, 0, kEach, ours, 0), -1)
            << kKinds[kind];
      }
    }
  }

  Rng rng_{GetParam()};
  std::array<Lot, kAtOnce> lots_;
  uint64_t numbers_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Seeds, GpuRandom, ::testing::Range<uint64_t>(1, 9));

TEST_P(GpuRandom, WhatArrivesIsRightAndNothingLandsLate) {
  for (int round = 0; round < smaller_if_sanitized(25, 8) && !HasFailure(); ++round) {
    SCOPED_TRACE(strf("round {}", round));
    for (Lot& lot : lots_) {
      post(lot);
      if (rng_.below(3) == 0) disturb();
    }
    for (Lot& lot : lots_)
      if (!HasFailure()) end(lot);
    all_well();
    if (!HasFailure()) expect_nothing_lands();
    for (Lot& lot : lots_)
      for (Side& side : lot.sides)
        for (Local& local : side.memory) EXPECT_EQ(local.memory->damage(), "");
  }
  for (auto [engine, peer] : {std::pair{&pair->a, pair->b_at_a}, {&pair->b, pair->a_at_b}}) {
    tcpx_peer_info info{};
    ASSERT_TRUE(succeeded(engine->peer_info(peer, &info)));
    EXPECT_EQ(info.lanes, 3u) << "no lane is lost";
  }
}

}  // namespace
}  // namespace tcpx::test
