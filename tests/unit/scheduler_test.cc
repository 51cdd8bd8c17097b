// Which chunk goes next, by which lane: without a socket.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <numeric>

namespace tcpx {
namespace {

constexpr uint64_t kChunk = 1000;

struct Lanes {
  explicit Lanes(uint32_t count, Scheduler& scheduler) : loads(count) {
    for (uint32_t i = 0; i < count; ++i) {
      loads[i].open = true;
      scheduler.add_lane(i, loads[i]);
    }
  }
  std::vector<LaneLoad> loads;
};

std::shared_ptr<TransferState> posted(uint32_t chunks, LaneBits lanes = LaneBits::all()) {
  auto transfer = std::make_shared<TransferState>();
  for (uint32_t i = 0; i < chunks; ++i)
    transfer->plan.chunks.push_back({0, 1, i * kChunk, kChunk, {}, {}});
  transfer->stage.step(TransferState::Stage::kMoving);
  transfer->lanes = lanes;
  return transfer;
}

// What the lane gets, -1: nothing.
int ask(Scheduler& scheduler, Lanes& lanes, uint32_t lane, LaneBits* wake = nullptr) {
  ChunkWork work;
  LaneBits ignored;
  if (!scheduler.next(lane, {}, &work, wake != nullptr ? wake : &ignored)) return -1;
  lanes.loads[lane].in_flight.fetch_add(1);
  return static_cast<int>(work.chunk);
}

using Striping = Scheduler::Striping;

TEST(Scheduler, HandsOutEveryChunkOnceAndInOrder) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(1, scheduler);
  EXPECT_FALSE(scheduler.may_have_work());
  auto transfer = posted(5);
  scheduler.add(transfer);
  EXPECT_TRUE(scheduler.may_have_work());
  for (int chunk = 0; chunk < 5; ++chunk) EXPECT_EQ(ask(scheduler, lanes, 0), chunk);
  EXPECT_EQ(ask(scheduler, lanes, 0), -1);
  EXPECT_FALSE(scheduler.may_have_work());
  EXPECT_EQ(transfer->in_flight, 5u);
  EXPECT_EQ(transfer->shares[0].bytes, 5 * kChunk);
}

TEST(Scheduler, TransfersTakeTurns) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(1, scheduler);
  std::vector<std::shared_ptr<TransferState>> all = {posted(100), posted(100), posted(100)};
  for (auto& transfer : all) scheduler.add(transfer);
  for (int i = 0; i < 30; ++i) (void)ask(scheduler, lanes, 0);
  for (auto& transfer : all) EXPECT_EQ(transfer->next_chunk, 10u);
}

TEST(Scheduler, ALaneCarriesOnlyWhatItMay) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(3, scheduler);
  auto only_second = posted(4, LaneBits::only(1));
  scheduler.add(only_second);
  EXPECT_EQ(ask(scheduler, lanes, 0), -1);
  EXPECT_EQ(ask(scheduler, lanes, 2), -1);
  EXPECT_EQ(ask(scheduler, lanes, 1), 0);
  auto any = posted(4);
  scheduler.add(any);
  EXPECT_EQ(ask(scheduler, lanes, 0), 0);
  EXPECT_EQ(any->in_flight, 1u);
  EXPECT_EQ(only_second->in_flight, 1u);
}

// A WRITE out of a place of which the lane has no slot stays in the queue, where other lanes can
// have it. READs, and what needs no slot, pass it.
TEST(Scheduler, WhatNeedsASlotWaitsForOneAndHoldsUpNobody) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(2, scheduler);
  const Place gpu{Place::Kind::kCuda, 1};
  auto of_gpu = posted(1), of_host = posted(1), read = posted(1);
  of_gpu->plan.op = of_host->plan.op = TCPX_WRITE;
  read->plan.op = TCPX_READ;
  of_gpu->plan.chunks[0].local = read->plan.chunks[0].local = gpu;
  for (auto& transfer : {of_gpu, of_host, read}) scheduler.add(transfer);
  ChunkWork work;
  LaneBits wake;
  int others = 0;
  const uint32_t news = scheduler.news();
  while (scheduler.next(0, {.slots = mask_of(gpu)}, &work, &wake)) {
    EXPECT_NE(work.transfer, of_gpu);
    ++others;
  }
  EXPECT_EQ(others, 2);
  EXPECT_EQ(scheduler.news(), news + 2) << "one for each that was handed out, none for a refusal";
  EXPECT_FALSE(scheduler.next(0, {.slots = mask_of(gpu)}, &work, &wake));
  ASSERT_TRUE(scheduler.next(1, {.slots = mask_of({Place::Kind::kCuda, 2})}, &work, &wake));
  EXPECT_EQ(work.transfer, of_gpu);
}

// What waits for a slot says so in its receipt: while a lane would take a chunk of it, and no
// longer.
TEST(Scheduler, WhatALaneLeavesForWantOfSlotsWaits) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(2, scheduler);
  auto write = posted(2), read = posted(1), elsewhere = posted(1, LaneBits::only(1));
  write->plan.op = elsewhere->plan.op = TCPX_WRITE;
  read->plan.op = TCPX_READ;
  for (auto& transfer : {write, read, elsewhere}) scheduler.add(transfer);
  ChunkWork work;
  LaneBits wake;
  ASSERT_TRUE(scheduler.next(0, {.slots = kHostBit}, &work, &wake));
  EXPECT_EQ(work.transfer, read);
  EXPECT_TRUE(write->staging.slots.wanted()) << "it was passed";
  EXPECT_FALSE(read->staging.slots.wanted());
  EXPECT_FALSE(elsewhere->staging.slots.wanted()) << "that lane does not carry it";
  scheduler.slots_not_wanted(1);
  EXPECT_TRUE(write->staging.slots.wanted());
  scheduler.slots_not_wanted(0);
  EXPECT_FALSE(write->staging.slots.wanted());
  EXPECT_FALSE(scheduler.next(0, {.slots = kHostBit}, &work, &wake));
  EXPECT_TRUE(write->staging.slots.wanted());
  scheduler.remove(*write);
  EXPECT_FALSE(write->staging.slots.wanted()) << "it is not in the queue any more";
  EXPECT_GT(write->staging.slots.sum(now_ns()), 0);
}

TEST(Scheduler, ChunksKnowWhetherOtherLanesCarryPartsToo) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(2, scheduler);
  ChunkWork work;
  LaneBits wake;
  scheduler.add(posted(2, LaneBits::only(1)));
  ASSERT_TRUE(scheduler.next(1, {}, &work, &wake));
  EXPECT_FALSE(work.shared);
  scheduler.remove_all();
  scheduler.add(posted(2));
  ASSERT_TRUE(scheduler.next(0, {}, &work, &wake));
  EXPECT_TRUE(work.shared);
}

// The last chunks go to lanes that have nothing to do, and those are told.
TEST(Scheduler, WhatIsLeftGoesToLanesThatAreIdle) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(2, scheduler);
  auto transfer = posted(2);
  scheduler.add(transfer);
  EXPECT_EQ(ask(scheduler, lanes, 0), 0);
  LaneBits wake;
  EXPECT_EQ(ask(scheduler, lanes, 0, &wake), -1) << "the second one is for the other lane";
  EXPECT_EQ(wake, LaneBits::only(1));
  EXPECT_EQ(ask(scheduler, lanes, 1), 1);
}

TEST(Scheduler, NobodyIsLeftAnythingByALaneThatIsAlone) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(2, scheduler);
  lanes.loads[1].open = false;
  scheduler.add(posted(6));
  for (int chunk = 0; chunk < 6; ++chunk) EXPECT_EQ(ask(scheduler, lanes, 0), chunk);
}

TEST(Scheduler, NoLaneHoldsMoreThanHalfItsShareOfWhatIsLeft) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(4, scheduler);
  scheduler.add(posted(64));
  int held = 0;
  while (ask(scheduler, lanes, 0) >= 0) ++held;
  EXPECT_LE(held, 64 / 4 / 2);
  EXPECT_GE(held, 6);
}

// A chunk of a GPU's memory is copied at that end before or after it is on its way: a lane that
// held one on its way and one behind it would wait for copies.
TEST(Scheduler, ALaneMayHoldMoreWhereChunksAreCopied) {
  const PlaceMask gpu = mask_of({Place::Kind::kCuda, 1});
  const auto held_of = [](PlaceMask local, PlaceMask remote, uint32_t chunks) {
    Scheduler scheduler(Striping::kAdaptive);
    Lanes lanes(8, scheduler);
    for (LaneLoad& load : lanes.loads) load.serving = 1;  // no lane is idle
    auto transfer = posted(chunks);
    transfer->plan.local_places = local;
    transfer->plan.remote_places = remote;
    scheduler.add(transfer);
    int held = 0;
    while (ask(scheduler, lanes, 0) >= 0) ++held;
    EXPECT_EQ(scheduler.why_none(), Scheduler::WhyNone::kKeptBack);
    return held;
  };
  EXPECT_EQ(held_of(kHostBit, kHostBit, 24), 2);
  EXPECT_EQ(held_of(gpu, kHostBit, 32), 4);
  EXPECT_EQ(held_of(kHostBit, gpu, 32), 4);
  EXPECT_EQ(held_of(gpu, gpu, 48), 6);
  EXPECT_EQ(held_of(gpu, gpu, 24), 3) << "as many as come to each lane";
}

// Who looks often need not look at the same queue again.
TEST(Scheduler, SaysWhyALaneGetsNothing) {
  using WhyNone = Scheduler::WhyNone;
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(2, scheduler);
  EXPECT_EQ(ask(scheduler, lanes, 0), -1);
  EXPECT_EQ(scheduler.why_none(), WhyNone::kOther);
  auto transfer = posted(2);
  transfer->plan.op = TCPX_WRITE;
  scheduler.add(transfer);
  ChunkWork work;
  LaneBits wake;
  EXPECT_FALSE(scheduler.next(0, {.slots = kHostBit}, &work, &wake));
  EXPECT_EQ(scheduler.why_none(), WhyNone::kPassedOver);
  EXPECT_EQ(ask(scheduler, lanes, 0), 0);
  const uint32_t news = scheduler.news();
  EXPECT_EQ(ask(scheduler, lanes, 0), -1);
  EXPECT_EQ(scheduler.why_none(), WhyNone::kKeptBack);
  EXPECT_EQ(scheduler.news(), news);
  EXPECT_EQ(ask(scheduler, lanes, 1), 1);
  EXPECT_NE(scheduler.news(), news) << "the other has taken of it: who was kept back looks again";
  EXPECT_EQ(ask(scheduler, lanes, 0), -1);
  EXPECT_EQ(scheduler.why_none(), WhyNone::kOther) << "there is nothing left";
}

TEST(Scheduler, RoundRobinGivesEveryLaneItsTurn) {
  Scheduler scheduler(Striping::kRoundRobin);
  Lanes lanes(3, scheduler);
  auto transfer = posted(30);
  scheduler.add(transfer);
  LaneBits wake;
  EXPECT_EQ(ask(scheduler, lanes, 2, &wake), -1);
  EXPECT_EQ(wake, LaneBits::only(0)) << "whose turn it is";
  for (uint32_t chunk = 0; chunk < 30; ++chunk)
    EXPECT_EQ(ask(scheduler, lanes, chunk % 3), static_cast<int>(chunk));
  for (const LaneShare& share : transfer->shares) EXPECT_EQ(share.chunks, 10u);
}

TEST(Scheduler, RoundRobinPassesOverALaneThatIsGone) {
  Scheduler scheduler(Striping::kRoundRobin);
  Lanes lanes(3, scheduler);
  scheduler.add(posted(10));
  EXPECT_EQ(ask(scheduler, lanes, 0), 0);
  lanes.loads[1].open = false;
  EXPECT_EQ(ask(scheduler, lanes, 2), 1);
  EXPECT_EQ(ask(scheduler, lanes, 0), 2);
}

TEST(Scheduler, TheLightestLaneIsTheOneWithTheFewestChunks) {
  Scheduler scheduler(Striping::kAdaptive);
  EXPECT_EQ(scheduler.lightest(), kNoLane);
  Lanes lanes(3, scheduler);
  lanes.loads[0].in_flight = 3;
  lanes.loads[1].in_flight = 1;
  lanes.loads[2].in_flight = 2;
  EXPECT_EQ(scheduler.lightest(), 1u);
  lanes.loads[1].open = false;
  EXPECT_EQ(scheduler.lightest(), 2u);
}

TEST(Scheduler, DealsToIdleLanesThatCannotHang) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(5, scheduler);
  lanes.loads[0].in_flight = 1;
  lanes.loads[1].may_hang = true;
  lanes.loads[2].serving = 1;
  lanes.loads[3].dealt = true;
  auto transfer = posted(8);
  EXPECT_EQ(scheduler.next_to_deal(*transfer, 0), 4u);
  EXPECT_EQ(scheduler.next_to_deal(*transfer, 5), kNoLane);
  scheduler.add(posted(1));
  EXPECT_EQ(scheduler.next_to_deal(*transfer, 0), kNoLane) << "another transfer waits";
  scheduler.remove_all();
  transfer->lanes = LaneBits::only(0);
  EXPECT_EQ(scheduler.next_to_deal(*transfer, 0), kNoLane) << "it may not carry it";
}

TEST(Scheduler, WhatComesBackGoesAgain) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(1, scheduler);
  auto transfer = posted(2);
  scheduler.add(transfer);
  ChunkWork first, second;
  LaneBits wake;
  ASSERT_TRUE(scheduler.next(0, {}, &first, &wake));
  ASSERT_TRUE(scheduler.next(0, {}, &second, &wake));
  EXPECT_TRUE(scheduler.empty());
  scheduler.take_back(second, 0);  // it never left: as if it had not been handed out
  EXPECT_EQ(transfer->retries, 0u);
  EXPECT_EQ(transfer->shares[0].chunks, 1u);
  EXPECT_EQ(transfer->in_flight, 1u);
  scheduler.send_again(first);
  EXPECT_EQ(transfer->retries, 1u);
  EXPECT_EQ(transfer->in_flight, 0u);
  EXPECT_EQ(ask(scheduler, lanes, 0), 0);
  EXPECT_EQ(ask(scheduler, lanes, 0), 1);
  EXPECT_EQ(ask(scheduler, lanes, 0), -1);
}

TEST(Scheduler, WhatFailsIsNotHandedOut) {
  Scheduler scheduler(Striping::kAdaptive);
  Lanes lanes(1, scheduler);
  auto transfer = posted(3);
  scheduler.add(transfer);
  ChunkWork work;
  LaneBits wake;
  ASSERT_TRUE(scheduler.next(0, {}, &work, &wake));
  scheduler.remove(*transfer);
  transfer->stage.step(TransferState::Stage::kFailing);
  scheduler.send_again(work);  // its lane is lost meanwhile
  EXPECT_FALSE(scheduler.next(0, {}, &work, &wake));
  EXPECT_FALSE(transfer->queued);
}

}  // namespace
}  // namespace tcpx
