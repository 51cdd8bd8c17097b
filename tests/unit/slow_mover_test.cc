// Moves between memory and slots take their time: "done" and the fences wait for them, a missing
// slot holds up what needs it and nothing else, and a failure costs the transfer alone.
#include "slow_mover.h"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "base/thread.h"
#include "core_pair.h"
#include "engine/peer.h"
#include "support/emulator.h"
#include "support/env.h"
#include "support/proc.h"

namespace tcpx {
namespace {

using std::chrono::milliseconds;

uint8_t pattern(size_t i, int round) {
  return static_cast<uint8_t>((i * 0x9E3779B97F4A7C15ull >> 29) ^ static_cast<size_t>(round * 37));
}

// How payload travels. Beside the stream what arrives is unpacked, into slots or straight into
// place; what leaves goes through slots, all of it or only where the plugin cannot take it.
enum class Way { kTcp, kNetStaged, kNet };

NameValues options_of(Way way) {
  if (way == Way::kTcp) return {{"require_path", "tcp"}};
  ::setenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", "lo", 1);
  ::setenv("TCPX_EMU_DEVICE", "host", 1);
  ::setenv("TCPX_EMU_FRAGMENTS", "mixed", 1);
  return {{"require_path", "net"},
          {"net_plugin", TCPX_TEST_EMULATOR_PATH},
          {"net_chunk", "64K"},
          {"striping", "round_robin"}};
}

// No whole page, however the memory is aligned: a plugin cannot send it from there.
constexpr size_t kOddEnd = 100;

// Both sides move everything slowly, whether it leaves or arrives.
struct SlowPair {
  SlowMovers source_movers, target_movers;
  SlowMoves &source, &target;
  const Way way;
  tcpx_emu_counters before{};
  CorePair engines;
  std::vector<uint8_t>&local, &remote;

  struct Speed {
    size_t slots = 32;
    Nanos delay = 0;
  };
  SlowPair(Way by, size_t bytes, Speed of_source, Speed of_target, const char* lanes = "2",
           const char* chunk = "64K")
      : source_movers(of_source.slots, of_source.delay),
        target_movers(of_target.slots, of_target.delay),
        source(source_movers.moves),
        target(target_movers.moves),
        way(by),
        engines(bytes + kOddEnd, &source_movers, &target_movers, chunk, lanes, options_of(by)),
        local(engines.local),
        remote(engines.remote) {
    source.stages = target.stages = by != Way::kNet;
    EXPECT_TRUE(connected()) << "no lanes";
    if (by != Way::kTcp) before = test::emulator_counters(TCPX_TEST_EMULATOR_PATH);
    source.begun = target.begun = 0;  // proofs of comms
  }
  SlowPair(Way by, size_t bytes, size_t slots, Nanos delay, const char* lanes = "2")
      : SlowPair(by, bytes, {slots, delay}, {slots, delay}, lanes) {}
  ~SlowPair() {
    engines.source.reset();
    engines.target.reset();
    if (way != Way::kTcp) expect_plugin_well_used();
  }
  // In order, after the move and only then, each of them: what the emulator's strict mode refuses.
  void expect_plugin_well_used() {
    tcpx_emu_counters now = test::emulator_counters(TCPX_TEST_EMULATOR_PATH);
    EXPECT_EQ(now.misuses, before.misuses) << test::emulator(TCPX_TEST_EMULATOR_PATH).last_misuse();
    EXPECT_EQ(now.comms_open, 0u);
    EXPECT_EQ(now.pool_pages_free, now.pool_pages) << "pages that nobody gave back";
  }
  bool connected() {
    return engines.prepare(TCPX_READ)->peer->wait_connected(now_ns() + 20 * kSecond).ok();
  }
  void sync() { std::lock_guard one(source.mu), other(target.mu); }
  // What `op` reads gets a pattern, what it writes poison.
  void prime(tcpx_op op, int round) {
    sync();
    auto& from = op == TCPX_WRITE ? local : remote;
    auto& to = op == TCPX_WRITE ? remote : local;
    for (size_t i = 0; i < from.size(); ++i) from[i] = pattern(i, round);
    std::fill(to.begin(), to.end(), 0xAA);
  }
  std::shared_ptr<TransferState> post(tcpx_op op) {
    auto transfer = engines.prepare(op);
    sync();
    engines.post(transfer);
    return transfer;
  }
  static void wait(const std::shared_ptr<TransferState>& transfer, Nanos time = 20 * kSecond) {
    transfer->peer->transfers().wait(*transfer, now_ns() + time);
  }
  ::testing::AssertionResult moved(tcpx_op op, int round) {
    prime(op, round);
    auto transfer = post(op);
    wait(transfer);
    sync();
    if (transfer->code != TCPX_OK)
      return ::testing::AssertionFailure() << transfer->status.to_string();
    for (size_t i = 0; i < local.size(); ++i)
      if (local[i] != pattern(i, round) || remote[i] != local[i])
        return ::testing::AssertionFailure() << "byte " << i << " in round " << round;
    return ::testing::AssertionSuccess();
  }
  static bool reaches(const std::atomic<uint64_t>& counter, uint64_t least,
                      const std::shared_ptr<TransferState>& transfer) {
    for (int i = 0; i < 5000 && counter < least; ++i) {
      transfer->peer->transfers().poll(*transfer);
      std::this_thread::sleep_for(milliseconds(1));
    }
    return counter >= least;
  }
};

struct Case {
  Way way;
  tcpx_op op;
  bool at_source;  // who moves slowly: who asked, or the other one
};
const char* name_of(Way way) {
  return way == Way::kTcp ? "Tcp" : way == Way::kNetStaged ? "NetStaged" : "Net";
}
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c.way) << (c.op == TCPX_WRITE ? "Write" : "Read")
             << (c.at_source ? "Source" : "Target");
}
std::vector<Case> all_cases() {
  std::vector<Case> out;
  for (Way way : {Way::kTcp, Way::kNetStaged, Way::kNet})
    for (tcpx_op op : {TCPX_WRITE, TCPX_READ})
      for (bool at_source : {true, false}) out.push_back({way, op, at_source});
  return out;
}

class SlowMove : public ::testing::TestWithParam<Case> {
 protected:
  SlowMoves& slow(SlowPair& pair) { return GetParam().at_source ? pair.source : pair.target; }
  // A transfer whose first move has begun, and does not end before the test says so.
  std::shared_ptr<TransferState> post_held(SlowPair& pair) {
    pair.prime(GetParam().op, 1);
    slow(pair).held = true;
    auto transfer = pair.post(GetParam().op);
    EXPECT_TRUE(pair.reaches(slow(pair).begun, 1, transfer));
    return transfer;
  }
};
INSTANTIATE_TEST_SUITE_P(All, SlowMove, ::testing::ValuesIn(all_cases()),
                         ::testing::PrintToStringParamName());

TEST_P(SlowMove, IsPartOfTheTransfer) {
  SlowPair pair(GetParam().way, 256 << 10, 8, 0);
  pair.prime(GetParam().op, 1);
  slow(pair).held = true;
  auto transfer = pair.post(GetParam().op);
  pair.wait(transfer, 300 * kMilli);
  EXPECT_TRUE(transfer->in_progress()) << "done was reported before the bytes were moved";
  EXPECT_GT(slow(pair).begun, 0u);
  EXPECT_EQ((GetParam().op == TCPX_WRITE ? pair.remote : pair.local).back(), 0xAA);
  pair.sync();
  slow(pair).held = false;
  pair.wait(transfer);
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
  pair.sync();
  EXPECT_EQ(pair.remote, pair.local);
}

TEST_P(SlowMove, FewSlotsHoldItUpAndNothingIsLost) {
  SlowPair::Speed few{1, 200 * kMicro}, many;
  const bool here = GetParam().at_source;
  SlowPair pair(GetParam().way, 4 << 20, here ? few : many, here ? many : few);
  for (int round = 0; round < 3; ++round) ASSERT_TRUE(pair.moved(GetParam().op, round));
  // Of what goes straight nothing runs out.
  if (GetParam().way != Way::kNet) {
    EXPECT_GT(slow(pair).starved, 0u) << "the test did not run out of slots";
  }
}

TEST_P(SlowMove, ThatFailsCostsTheTransferAlone) {
  SlowPair pair(GetParam().way, 1 << 20, 4, 0);
  pair.prime(GetParam().op, 1);
  slow(pair).fail_next = 1;
  auto transfer = pair.post(GetParam().op);
  pair.wait(transfer);
  EXPECT_EQ(transfer->code.load(), TCPX_COPY_FAILED) << transfer->status.to_string();
  if (GetParam().at_source) {
    EXPECT_NE(transfer->status.to_string().find("the test said so"), std::string::npos)
        << transfer->status.to_string();
  }
  // Its other chunks may still be on their way.
  EXPECT_TRUE(transfer->peer->transfers().cancel(transfer, now_ns() + 20 * kSecond).ok());
  for (int round = 2; round < 4; ++round) ASSERT_TRUE(pair.moved(GetParam().op, round));
}

// A loop that waits for a move sleeps.
TEST_P(SlowMove, KeepsNoLoopSpinning) {
  SlowPair pair(GetParam().way, 256 << 10, 1, 0);
  auto transfer = post_held(pair);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_LT(test::busy_cores(milliseconds(500)), test::kFewCores);
  slow(pair).held = false;
  pair.wait(transfer);
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
}

// Cancel and deregister return when no move touches the memory any more.
TEST_P(SlowMove, HoldsUpAFence) {
  SlowPair pair(GetParam().way, 4 << 20, 8, 0);
  auto transfer = post_held(pair);
  std::atomic<bool> returned{false};
  std::thread fence([&] {
    Status status = GetParam().at_source
                        ? transfer->peer->transfers().cancel(transfer, now_ns() + 20 * kSecond)
                        : pair.engines.target->regions().deregister(pair.engines.remote_region);
    EXPECT_TRUE(status.ok()) << status.to_string();
    returned = true;
  });
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_FALSE(returned) << "the fence opened while a move was under way";
  slow(pair).held = false;
  fence.join();
  const uint64_t begun = slow(pair).begun;
  std::vector<uint8_t>& fenced = GetParam().at_source ? pair.local : pair.remote;
  std::vector<uint8_t> after = fenced;
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(slow(pair).begun, begun);
  EXPECT_TRUE(after == fenced) << "touched after the fence";
  pair.wait(transfer);
  EXPECT_FALSE(transfer->in_progress());
  // What has to be moved before it leaves may be the last chunk alone, and be in its slot by then.
  const bool leaves = (GetParam().op == TCPX_WRITE) == GetParam().at_source;
  if (GetParam().way != Way::kNet || !leaves) {
    EXPECT_NE(transfer->code.load(), TCPX_OK);
  }
}

// The session ends with moves under way: they are waited for, by a loop that does other things too.
TEST_P(SlowMove, OutlivesItsLane) {
  SlowPair pair(GetParam().way, 256 << 10, 8, 0);
  auto transfer = post_held(pair);
  auto& ends = GetParam().at_source ? pair.engines.source : pair.engines.target;
  std::atomic<bool> gone{false};
  std::thread destroyer([&] {
    ends.reset();
    gone = true;
  });
  std::this_thread::sleep_for(milliseconds(700));
  EXPECT_FALSE(gone) << "an engine was destroyed while a move touched its memory";
  if (GetParam().way == Way::kNet && (GetParam().op == TCPX_READ) == GetParam().at_source) {
    EXPECT_GT(test::emulator_counters(TCPX_TEST_EMULATOR_PATH).comms_open, 0u)
        << "a comm was closed while a move read its pages";
  }
  EXPECT_LT(test::busy_cores(milliseconds(400)), test::kFewCores);
  slow(pair).held = false;
  destroyer.join();
  std::vector<uint8_t>& fenced = GetParam().at_source ? pair.local : pair.remote;
  std::vector<uint8_t> after = fenced;
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_TRUE(after == fenced) << "touched after its engine had gone";
  if (!GetParam().at_source) pair.wait(transfer);
  EXPECT_FALSE(transfer->in_progress());
}

// READs that are served, of which most wait for a slot when their lane goes down.
TEST(SlowMoveOfALostLane, IsTheLastOne) {
  SlowPair pair(Way::kTcp, 1 << 20, {32, 0}, {2, 400 * kMilli}, "1");
  auto transfer = pair.engines.prepare(TCPX_READ);
  ASSERT_TRUE(transfer->peer->transfers().post(transfer, nullptr, kNever).ok());
  for (int i = 0; i < 5000 && pair.target.begun == 0; ++i)
    std::this_thread::sleep_for(milliseconds(1));
  ASSERT_GT(pair.target.begun, 0u);
  pair.engines.source.reset();
  std::this_thread::sleep_for(milliseconds(100));
  const uint64_t begun = pair.target.begun;
  std::this_thread::sleep_for(milliseconds(1200));
  EXPECT_EQ(pair.target.begun, begun) << "begun for a lane that is down";
  EXPECT_EQ(pair.target.done, begun) << "nobody looked at it to its end";
}

// The transfer is over, and its memory the caller's, when the last move is.
class SlowMoveHere : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Both, SlowMoveHere,
                         ::testing::Values(Case{Way::kTcp, TCPX_WRITE, true},
                                           Case{Way::kTcp, TCPX_READ, true},
                                           Case{Way::kNet, TCPX_WRITE, true},
                                           Case{Way::kNet, TCPX_READ, true}),
                         ::testing::PrintToStringParamName());

TEST_P(SlowMoveHere, HoldsUpADeadline) {
  SlowPair pair(GetParam().way, 256 << 10, 8, 0);
  pair.prime(GetParam().op, 1);
  pair.source.held = true;
  auto transfer = pair.engines.prepare(GetParam().op);
  pair.sync();
  ASSERT_TRUE(transfer->peer->transfers().post(transfer, nullptr, now_ns() + 300 * kMilli).ok());
  pair.wait(transfer, 2 * kSecond);  // longer than what does not move is waited for
  EXPECT_TRUE(transfer->in_progress()) << "ended while a move was under way";
  pair.source.held = false;
  pair.wait(transfer);
  EXPECT_EQ(transfer->code.load(), TCPX_DEADLINE);
}

// Two lanes of one loop share its slot: one that has none waits with the chunk it was dealt, and is
// told when there is one.
TEST(SlowMovers, LanesOfALoopShareItsSlots) {
  SlowPair pair(Way::kTcp, 256 << 10, 1, 100 * kMicro, "4");
  for (int round = 0; round < 20; ++round)
    ASSERT_TRUE(pair.moved(round % 2 == 0 ? TCPX_WRITE : TCPX_READ, round));
}

// Lanes whose peer does not read keep their slots. A session gets no more than are left for others,
// however many lanes it has.
TEST(SlowMovers, NoSessionTakesAllSlots) {
  SlowMoves moves(8, 0);
  SlowMover mover(moves);
  const auto theirs = std::make_shared<SlotShare>();
  LaneMoves greedy(&mover, 16, LaneTraits{}, theirs), another(&mover, 16, LaneTraits{}, theirs),
      modest(&mover, 16, LaneTraits{}, std::make_shared<SlotShare>());
  std::deque<TxFrame> frames;
  uint8_t memory[64] = {};
  auto fill = [&](LaneMoves& lane) {
    TxFrame& frame = frames.emplace_back();
    frame.header.payload_bytes = sizeof memory;
    frame.payload = {{memory, sizeof memory}};
    lane.fill(&frame);
  };
  size_t taken = 0;
  for (; greedy.starved() == 0; ++taken) fill(taken % 2 == 0 ? greedy : another);
  EXPECT_EQ(taken, 4u);
  EXPECT_FALSE(another.starved() == 0);
  EXPECT_TRUE(modest.starved() == 0);
  fill(modest);
  EXPECT_TRUE(modest.starved() == 0);
  EXPECT_FALSE(greedy.starved() == 0);
  MoveEnd end;
  while (TxFrame* frame = greedy.next_filled(&end)) greedy.give_back(frame);
  EXPECT_TRUE(greedy.starved() == 0);
}

// While no slot is free pings are not read; both sides know that the lane is alive.
TEST(SlowMovers, ALaneWithoutASlotIsNotSilent) {
  SlowPair pair(Way::kTcp, 1 << 20, 1, 0);
  pair.prime(TCPX_WRITE, 1);
  pair.target.held = true;
  auto transfer = pair.post(TCPX_WRITE);
  ASSERT_TRUE(pair.reaches(pair.target.starved, 1, transfer));
  pair.wait(transfer, CorePair::longer_than(CorePair::kPeerTimeout));
  EXPECT_TRUE(transfer->in_progress()) << transfer->status.to_string();
  EXPECT_EQ(transfer->peer->live_lanes(), 2u);
  pair.target.held = false;
  pair.wait(transfer);
  EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
  pair.sync();
  EXPECT_EQ(pair.remote, pair.local);
}

// Beside a stream too. The peer's requests are all being moved and it takes no more: what the
// plugin does not send now is not stalled.
TEST(SlowMovers, APeerThatMovesIsNotAPluginThatHangs) {
  SlowPair pair(Way::kNet, 32 << 20, {32, 0}, {32, 0}, "2", "1M");
  pair.prime(TCPX_WRITE, 1);
  pair.target.held = true;
  auto transfer = pair.post(TCPX_WRITE);
  pair.wait(transfer, CorePair::longer_than(CorePair::kLaneTimeout));
  EXPECT_TRUE(transfer->in_progress()) << transfer->status.to_string();
  EXPECT_EQ(transfer->peer->live_lanes(), 2u);
  pair.target.held = false;
  pair.wait(transfer);
  EXPECT_EQ(transfer->code.load(), TCPX_OK) << transfer->status.to_string();
  pair.sync();
  EXPECT_EQ(pair.remote, pair.local);
}

// Receives of a chunk that is given up need no move. Those that come in behind others that are
// being moved are finished when these are, although nothing more is due from the plugin.
TEST(SlowMovers, WhatNeedsNoMoveIsConsumedBehindWhatDoes) {
  SlowPair pair(Way::kNet, 4 << 20, {32, kMilli}, {32, 0}, "1", "1M");
  for (int round = 0; round < 10; ++round) {
    pair.prime(TCPX_READ, round);
    pair.source.begun = 0;
    auto transfer = pair.post(TCPX_READ);
    ASSERT_TRUE(pair.reaches(pair.source.begun, 2, transfer));
    EXPECT_TRUE(transfer->peer->transfers().cancel(transfer, now_ns() + 20 * kSecond).ok());
    auto none_live = [] {
      return test::emulator_counters(TCPX_TEST_EMULATOR_PATH).requests_live == 0;
    };
    EXPECT_TRUE(test::eventually(none_live));
    ASSERT_EQ(transfer->peer->live_lanes(), 1u) << "given up as stalled, round " << round;
  }
  EXPECT_TRUE(pair.moved(TCPX_READ, 11));
}

// A peer that has sent the data and then says that it could not: the transfer would end, and the
// move land in memory that its owner has for itself again.
TEST(SlowRead, IsNotEndedByALieWhileItsDataIsMoved) {
  SlowPair pair(Way::kTcp, 64 << 10, 8, 0, "1");
  pair.prime(TCPX_READ, 1);
  pair.source.held = true;
  auto transfer = pair.post(TCPX_READ);
  ASSERT_TRUE(pair.reaches(pair.source.begun, 1, transfer));
  PeerLane* lane = *transfer->peer->lanes().begin();
  wire::Header lie;
  lie.type = wire::FrameType::kReadFailed;
  lie.status = TCPX_OUT_OF_RANGE;
  lie.transfer = transfer->id;
  Status heard;
  ASSERT_TRUE(lane->in_loop([&] { heard = lane->on_frame(lie, {}); }));
  EXPECT_EQ(heard.code(), TCPX_PROTOCOL_ERROR) << heard.to_string();
  EXPECT_TRUE(transfer->in_progress());
  pair.source.held = false;
  pair.wait(transfer);
  pair.sync();
  EXPECT_EQ(transfer->code.load(), TCPX_OK);
  EXPECT_EQ(pair.local, pair.remote);
}

}  // namespace
}  // namespace tcpx
