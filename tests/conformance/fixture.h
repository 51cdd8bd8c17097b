// One engine under test and any number of peers, each a thread or a process. Memory on both sides
// has an expected image: a transfer that succeeds changes the image of its destination, and
// expect_intact() compares everything, so a byte that lands where it should not is found too.
#pragma once

#include <deque>
#include <memory>

#include "rows.h"

namespace tcpx::test {

inline constexpr uint32_t kReadWrite = TCPX_REMOTE_READ | TCPX_REMOTE_WRITE;

struct LocalRegion {
  std::unique_ptr<Memory> memory;
  tcpx_region id = 0;
  std::vector<uint8_t> expected;
};
struct PeerRegion {
  std::string name;
  tcpx_remote_region remote{};
  std::vector<uint8_t> expected;
};
// One piece of a transfer between a local and a peer region.
struct Span {
  uint64_t local, remote, length;
};

inline std::vector<uint8_t> image(uint64_t size, uint64_t seed, uint64_t iteration = 0) {
  std::vector<uint8_t> out(size);
  Pattern(seed, iteration).fill(out.data(), size, 0);
  return out;
}

// A peer program and our connection to it.
class Remote {
 public:
  Remote(Placement placement, const Options& options, std::string kind)
      : program(placement), kind_(std::move(kind)) {
    program.create(options);
  }

  PeerRegion& memory(uint64_t size, uint64_t seed, uint32_t access = kReadWrite,
                     uint64_t skew = 0) {
    PeerRegion region;
    region.name = "m" + std::to_string(regions_.size());
    region.remote = program.memory(region.name, size, access, seed, kind_, skew);
    region.expected = image(size, seed);
    return regions_.emplace_back(std::move(region));
  }
  void expect_intact(const PeerRegion& region) {
    EXPECT_EQ(program("damage {}", region.name), "") << "guard zone of " << region.name;
    std::string seen = program("digest {} 0 {}", region.name, region.expected.size());
    if (seen == std::to_string(Digest::of(region.expected.data(), region.expected.size()))) return;
    ADD_FAILURE() << "peer memory " << region.name << " is wrong from byte " << first_wrong(region);
  }

  Peer program;
  tcpx_peer id = 0;

 private:
  uint64_t first_wrong(const PeerRegion& region) {
    constexpr uint64_t kPage = 4096;
    for (uint64_t at = 0; at < region.expected.size(); at += kPage) {
      uint64_t n = std::min(kPage, region.expected.size() - at);
      Bytes seen = from_hex(program("bytes {} {} {}", region.name, at, n));
      for (uint64_t i = 0; i < n; ++i)
        if (seen[i] != region.expected[at + i]) return at + i;
    }
    return region.expected.size();
  }
  std::string kind_;
  std::deque<PeerRegion> regions_;
};

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (row().excluded != nullptr) GTEST_SKIP() << row().excluded;
    row().set_environment();
    engine = make_engine(row().engine_options());
  }
  const Row& row() const { return *GetParam().row; }

  // A peer that has not met our engine yet.
  Remote& make_peer(const Options& more = {}) {
    peers_.push_back(
        std::make_unique<Remote>(GetParam().placement, row().engine_options(more),
                                 row().peer_memory != nullptr ? row().peer_memory : row().memory));
    return *peers_.back();
  }
  Remote& connected_peer(const Options& more = {}) {
    Remote& peer = make_peer(more);
    EXPECT_TRUE(succeeded(engine.connect(peer.program.info(), &peer.id)));
    EXPECT_TRUE(succeeded(engine.peer_wait(peer.id, kLong)));
    return peer;
  }
  LocalRegion& local_memory(uint64_t size, uint64_t seed, uint32_t access = 0, uint64_t skew = 0) {
    LocalRegion region;
    region.memory = allocate(row().memory, size, skew);
    region.expected = image(size, seed);
    region.memory->store(0, region.expected.data(), size);
    EXPECT_TRUE(
        succeeded(engine.register_memory(region.memory->address(), size, access, &region.id)));
    return locals_.emplace_back(std::move(region));
  }

  Transfer prepare(Remote& peer, tcpx_op op, const LocalRegion& local, const PeerRegion& remote,
                   const std::vector<Span>& spans) {
    std::vector<tcpx_local_piece> mine;
    std::vector<tcpx_remote_piece> theirs;
    for (const Span& span : spans) {
      mine.push_back({local.id, span.local, span.length});
      theirs.push_back({&remote.remote, span.remote, span.length});
    }
    Transfer transfer;
    EXPECT_TRUE(succeeded(engine.prepare(peer.id, op, mine, theirs, &transfer)));
    return transfer;
  }
  // What a done transfer has changed.
  static void apply(tcpx_op op, LocalRegion& local, PeerRegion& remote,
                    const std::vector<Span>& spans) {
    for (const Span& span : spans) {
      if (span.length == 0) continue;
      uint8_t* mine = local.expected.data() + span.local;
      uint8_t* theirs = remote.expected.data() + span.remote;
      if (op == TCPX_WRITE)
        std::memcpy(theirs, mine, span.length);
      else
        std::memcpy(mine, theirs, span.length);
    }
  }
  // Prepares, posts, waits, and expects success.
  tcpx_receipt move(Remote& peer, tcpx_op op, LocalRegion& local, PeerRegion& remote,
                    const std::vector<Span>& spans) {
    Transfer transfer = prepare(peer, op, local, remote, spans);
    EXPECT_TRUE(succeeded(transfer.post()));
    Result result = transfer.wait(kLong);
    EXPECT_TRUE(succeeded(result)) << transfer.error();
    if (result) apply(op, local, remote, spans);
    return transfer.receipt();
  }
  void expect_intact(const LocalRegion& region) {
    EXPECT_EQ(region.memory->damage(), "");
    uint64_t size = region.expected.size();
    if (digest(*region.memory, 0, size) == Digest::of(region.expected.data(), size)) return;
    std::vector<uint8_t> seen(size);
    region.memory->load(0, seen.data(), size);
    uint64_t at = 0;
    while (at < size && seen[at] == region.expected[at]) ++at;
    ADD_FAILURE() << "local memory is wrong from byte " << at;
  }

 private:
  std::deque<LocalRegion> locals_;  // outlives the engine that has it registered

 protected:
  Engine engine;

 private:
  std::vector<std::unique_ptr<Remote>> peers_;
};

inline const char* op_name(tcpx_op op) {
  return op == TCPX_WRITE ? "WRITE" : "READ";
}
inline constexpr tcpx_op kBothOps[] = {TCPX_WRITE, TCPX_READ};

#define TCPX_INSTANTIATE_CONFORMANCE(suite)                            \
  INSTANTIATE_TEST_SUITE_P(Paths, suite, ::testing::ValuesIn(cases()), \
                           [](const auto& each) { return name_of(each.param); })

// For what only one row is about.
#define TCPX_INSTANTIATE_CONFORMANCE_ROW(suite, row_name)                      \
  INSTANTIATE_TEST_SUITE_P(Paths, suite, ::testing::ValuesIn(cases(row_name)), \
                           [](const auto& each) { return name_of(each.param); })

}  // namespace tcpx::test
