// The CPU's unpack step: the oracle for kernels, so it is itself compared with the definition, byte
// by byte, on random fragment plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "path/net/unpack.h"
#include "wire_test_util.h"

namespace tcpx::net {
namespace {

using nccl::Fragment;

enum class Plan { kPages, kMtu, kRandom };

struct Message {
  std::vector<uint8_t> content;
  std::vector<uint8_t> pool;
  std::vector<Fragment> fragments;
};

// `bytes` of random content, cut by the plan, each fragment anywhere in a page of its own.
Message make_message(uint64_t bytes, Plan plan, bool shuffled, std::mt19937_64& random) {
  Message m;
  m.content.resize(bytes);
  for (uint8_t& byte : m.content) byte = static_cast<uint8_t>(random());
  for (uint64_t at = 0; at < bytes;) {
    uint64_t most = plan == Plan::kPages ? 4096 : plan == Plan::kMtu ? 1448 : 1 + random() % 4096;
    uint32_t length = static_cast<uint32_t>(std::min<uint64_t>(most, bytes - at));
    uint64_t skew = plan == Plan::kPages ? 0 : random() % (4096 - length + 1);
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

TEST(Unpack, PutsEveryByteInItsPlaceForEveryPlan) {
  std::mt19937_64 random(test::test_seed());
  for (Plan plan : {Plan::kPages, Plan::kMtu, Plan::kRandom}) {
    for (bool shuffled : {false, true}) {
      for (uint64_t bytes : {1ul, 4095ul, 4096ul, 4097ul, 65537ul, 524288ul}) {
        for (size_t pieces : {1ul, 2ul, 37ul}) {
          Message m = make_message(bytes, plan, shuffled, random);
          if (m.fragments.size() > nccl::kUnpackFragments) continue;
          ASSERT_TRUE(covers_exactly(m.fragments, bytes, m.pool.size()));
          Destination to(bytes, pieces, random);
          size_t in_content =
              static_cast<size_t>(std::count(m.content.begin(), m.content.end(), 0xAA));
          ScatterList list(to.parts);
          unpack(m.fragments, m.pool.data(), list, 0);
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
  ScatterList list(to.parts);
  std::vector<uint8_t> all;
  for (uint64_t i = 0; i < 3; ++i) {
    Message m = make_message(10000, Plan::kRandom, true, random);
    unpack(m.fragments, m.pool.data(), list, i * 10000);
    all.insert(all.end(), m.content.begin(), m.content.end());
  }
  EXPECT_EQ(to.gathered(), all);
}

TEST(Unpack, FragmentsThatDoNotCoverExactlyOnceAreRefused) {
  std::mt19937_64 random(test::test_seed());
  Message m = make_message(100000, Plan::kRandom, true, random);
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
  std::vector<Fragment> many(nccl::kUnpackFragments + 1, Fragment{0, 1, 0});
  EXPECT_FALSE(covers_exactly(many, many.size(), 0));
}

TEST(ScatterList, FindsWhatIsInOnePiece) {
  uint8_t memory[100];
  iovec parts[] = {{memory, 10}, {memory + 50, 20}, {memory + 80, 5}};
  ScatterList list(parts);
  EXPECT_EQ(list.contiguous(10, 20), memory + 50);
  EXPECT_EQ(list.contiguous(0, 10), memory);
  EXPECT_EQ(list.contiguous(12, 3), memory + 52);
  EXPECT_EQ(list.contiguous(30, 5), memory + 80);
  EXPECT_EQ(list.contiguous(9, 2), nullptr);
  EXPECT_EQ(list.contiguous(30, 6), nullptr);
}

}  // namespace
}  // namespace tcpx::net
