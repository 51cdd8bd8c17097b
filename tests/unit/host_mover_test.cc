// What the host mover does with fragments: the oracle for kernels, so it is itself compared with
// the definition, byte by byte, on random fragment plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "memory/host_mover.h"
#include "wire_test_util.h"

namespace tcpx {
namespace {

enum class Cut { kPages, kMtu, kRandom };

struct Message {
  std::vector<uint8_t> content;
  std::vector<uint8_t> pool;
  std::vector<Fragment> fragments;
};

// `bytes` of random content, cut by the plan, each fragment anywhere in a page of its own.
Message make_message(uint64_t bytes, Cut plan, bool shuffled, std::mt19937_64& random) {
  Message m;
  m.content.resize(bytes);
  for (uint8_t& byte : m.content) byte = static_cast<uint8_t>(random());
  for (uint64_t at = 0; at < bytes;) {
    uint64_t most = plan == Cut::kPages ? 4096 : plan == Cut::kMtu ? 1448 : 1 + random() % 4096;
    uint32_t length = static_cast<uint32_t>(std::min<uint64_t>(most, bytes - at));
    uint64_t skew = plan == Cut::kPages ? 0 : random() % (4096 - length + 1);
    m.fragments.push_back({0, length, at});
    m.fragments.back().source = static_cast<uint32_t>(skew);  // within its page, for now
    at += length;
  }
  std::vector<uint32_t> pages(m.fragments.size() + 3);
  std::iota(pages.begin(), pages.end(), 0);
  std::shuffle(pages.begin(), pages.end(), random);
  m.pool.assign(pages.size() * 4096, 0xEE);
  for (size_t i = 0; i < m.fragments.size(); ++i) {
    Fragment& f = m.fragments[i];
    f.source += pages[i] * 4096;
    std::copy_n(m.content.begin() + static_cast<ptrdiff_t>(f.destination), f.length,
                m.pool.begin() + f.source);
  }
  if (shuffled) std::shuffle(m.fragments.begin(), m.fragments.end(), random);
  return m;
}

// A destination in pieces of random length, with guard bytes between them.
struct Destination {
  std::vector<uint8_t> memory;
  std::vector<iovec> parts;

  Destination(uint64_t bytes, size_t pieces, std::mt19937_64& random) {
    std::vector<uint64_t> cuts = {0, bytes};
    for (size_t i = 1; i < pieces; ++i) cuts.push_back(random() % (bytes + 1));
    std::sort(cuts.begin(), cuts.end());
    memory.assign(bytes + 64 * (pieces + 1), 0xAA);
    uint64_t at = 1 + random() % 63;
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      uint64_t length = cuts[i + 1] - cuts[i];
      if (length > 0) parts.push_back({memory.data() + at, length});
      at += length + 1 + random() % 62;
    }
  }
  std::vector<uint8_t> gathered() const {
    std::vector<uint8_t> out;
    for (const iovec& part : parts) {
      auto* from = static_cast<const uint8_t*>(part.iov_base);
      out.insert(out.end(), from, from + part.iov_len);
    }
    return out;
  }
  size_t poisoned() const {
    return static_cast<size_t>(std::count(memory.begin(), memory.end(), 0xAA));
  }
};

// How many looks it took.
int unpack(HostMover& mover, const Message& m, const Destination& to, uint64_t offset) {
  uint64_t ticket = mover.begin_unpack({m.fragments, m.pool.data(), to.parts, offset, {}});
  MoveEnd end;
  for (int looks = 1;; ++looks)
    if (mover.look(ticket, &end) == MoveState::kDone) return looks;
}

HostMover::Shape in_steps(uint64_t bytes) {
  return {1, false, bytes};
}

TEST(Unpack, PutsEveryByteInItsPlaceForEveryPlan) {
  std::mt19937_64 random(test::test_seed());
  HostMover whole({1, false}), steps(in_steps(10'000));
  for (Cut plan : {Cut::kPages, Cut::kMtu, Cut::kRandom}) {
    for (bool shuffled : {false, true}) {
      for (uint64_t bytes : {1ul, 4095ul, 4096ul, 4097ul, 65537ul, 524288ul}) {
        for (size_t pieces : {1ul, 2ul, 37ul}) {
          Message m = make_message(bytes, plan, shuffled, random);
          if (m.fragments.size() > kMostFragments) continue;
          ASSERT_TRUE(covers_exactly(m.fragments, bytes, m.pool.size()));
          Destination to(bytes, pieces, random);
          size_t in_content =
              static_cast<size_t>(std::count(m.content.begin(), m.content.end(), 0xAA));
          const bool at_once = random() % 2 == 0;
          int looks = unpack(at_once ? whole : steps, m, to, 0);
          ASSERT_EQ(looks == 1, at_once || bytes <= 4097);
          ASSERT_EQ(to.gathered(), m.content);
          // Nothing outside: as much poison as there was, plus what the content itself has.
          ASSERT_EQ(to.poisoned(), to.memory.size() - bytes + in_content);
        }
      }
    }
  }
}

TEST(Unpack, RequestsOfOneChunkFollowEachOther) {
  std::mt19937_64 random(test::test_seed());
  Destination to(3 * 10000, 11, random);
  HostMover mover(in_steps(3000));
  std::vector<uint8_t> all;
  for (uint64_t i = 0; i < 3; ++i) {
    Message m = make_message(10000, Cut::kRandom, true, random);
    unpack(mover, m, to, i * 10000);
    all.insert(all.end(), m.content.begin(), m.content.end());
  }
  EXPECT_EQ(to.gathered(), all);
}

TEST(Unpack, FragmentsThatDoNotCoverExactlyOnceAreRefused) {
  std::mt19937_64 random(test::test_seed());
  Message m = make_message(100000, Cut::kRandom, true, random);
  ASSERT_TRUE(covers_exactly(m.fragments, 100000, m.pool.size()));
  EXPECT_FALSE(covers_exactly(m.fragments, 99999, m.pool.size())) << "too much";
  EXPECT_FALSE(covers_exactly(m.fragments, 100001, m.pool.size())) << "too little";
  EXPECT_FALSE(covers_exactly(m.fragments, 100000, m.fragments[0].source)) << "outside the pool";
  for (int round = 0; round < 200; ++round) {
    std::vector<Fragment> bad = m.fragments;
    Fragment& f = bad[random() % bad.size()];
    switch (random() % 4) {
      case 0: f.length = 0; break;
      case 1: f.destination += 1; break;
      case 2: f.destination = ~0ull - random() % 8; break;
      case 3: f = bad[(static_cast<size_t>(&f - bad.data()) + 1) % bad.size()]; break;
    }
    EXPECT_FALSE(covers_exactly(bad, 100000, m.pool.size())) << round;
  }
  EXPECT_TRUE(covers_exactly({}, 0, 0));
  EXPECT_FALSE(covers_exactly({}, 1, 0)) << "an empty slot";
  std::vector<Fragment> many(kMostFragments + 1, Fragment{0, 1, 0});
  EXPECT_FALSE(covers_exactly(many, many.size(), 0));
}

TEST(ScatterList, FindsWhatIsInOnePart) {
  uint8_t memory[100];
  iovec parts[] = {{memory, 10}, {memory + 50, 20}, {memory + 80, 5}};
  ScatterList list(parts);
  size_t part = 9;
  EXPECT_EQ(list.contiguous(10, 20, &part), memory + 50);
  EXPECT_EQ(part, 1u);
  EXPECT_EQ(list.contiguous(0, 10, &part), memory);
  EXPECT_EQ(part, 0u);
  EXPECT_EQ(list.contiguous(12, 3, &part), memory + 52);
  EXPECT_EQ(list.contiguous(30, 5, &part), memory + 80);
  EXPECT_EQ(part, 2u);
  EXPECT_EQ(list.contiguous(9, 2, &part), nullptr);
  EXPECT_EQ(list.contiguous(30, 6, &part), nullptr);
  EXPECT_EQ(ScatterList().contiguous(0, 1, &part), nullptr);
}

// Several at once, looked at in any order, each with its own memory and slot.
TEST(HostMover, MovesOutAndInInSteps) {
  std::mt19937_64 random(test::test_seed());
  constexpr uint64_t kBytes = 100'000;
  HostMover mover({4, false, 32 << 10});
  EXPECT_TRUE(mover.by_hand());
  std::vector<Destination> from, to;
  std::vector<uint8_t*> slots;
  std::vector<uint64_t> tickets;
  auto finish = [&] {
    MoveEnd end;
    for (int looks = 0; !tickets.empty(); ++looks) {
      ASSERT_LT(looks, 16) << "4 moves of 4 steps each";
      size_t at = random() % tickets.size();
      if (mover.look(tickets[at], &end) == MoveState::kRunning) continue;
      tickets.erase(tickets.begin() + static_cast<ptrdiff_t>(at));
    }
  };
  for (int i = 0; i < 4; ++i) {
    from.emplace_back(kBytes, 23, random);
    to.emplace_back(kBytes, 7, random);
    for (const iovec& part : from.back().parts)
      for (size_t k = 0; k < part.iov_len; ++k)
        static_cast<uint8_t*>(part.iov_base)[k] = static_cast<uint8_t>(random());
    slots.push_back(mover.take_slot(SlotUse::kSend, kBytes, {}));
    ASSERT_NE(slots.back(), nullptr);
  }
  EXPECT_EQ(mover.take_slot(SlotUse::kSend, 1, {}), nullptr);
  EXPECT_EQ(mover.free_slots(SlotUse::kReceive, {}), 4u) << "the other use has its own";
  for (size_t i = 0; i < 4; ++i) tickets.push_back(mover.begin_out(from[i].parts, {}, slots[i]));
  ASSERT_NO_FATAL_FAILURE(finish());
  for (size_t i = 0; i < 4; ++i) tickets.push_back(mover.begin_in(slots[i], to[i].parts, {}));
  ASSERT_NO_FATAL_FAILURE(finish());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(to[i].gathered(), from[i].gathered());
    mover.give_slot(SlotUse::kSend, slots[i]);
  }
  EXPECT_EQ(mover.free_slots(SlotUse::kSend, {}), 4u);
}

// A plugin knows slots by these, and may know a slot that has become too small.
TEST(HostMover, ASlotThatGrowsIsAnotherOneToAPlugin) {
  HostMover mover({1, false});
  uint8_t* slot = mover.take_slot(SlotUse::kSend, 100, {});
  RegionExtent small = mover.slot_extent(slot);
  EXPECT_EQ(small.base, slot);
  EXPECT_EQ(small.length, 4096u);
  mover.give_slot(SlotUse::kSend, slot);
  ASSERT_EQ(mover.take_slot(SlotUse::kSend, 4096, {}), slot);
  EXPECT_EQ(mover.slot_extent(slot).id, small.id);
  mover.give_slot(SlotUse::kSend, slot);
  uint8_t* larger = mover.take_slot(SlotUse::kSend, 5000, {});
  EXPECT_NE(mover.slot_extent(larger).id, small.id);
  EXPECT_GE(mover.slot_extent(larger).length, 5000u);
  memset(slot, 1, small.length);  // still there
  uint8_t* other = mover.take_slot(SlotUse::kReceive, 1, {});
  EXPECT_NE(mover.slot_extent(other).id, mover.slot_extent(larger).id);
}

}  // namespace
}  // namespace tcpx
