// The table of paths: what rows do for an engine. The rows here are made up; a third one is all
// that a third path takes.
#include "path/paths.h"

#include <gtest/gtest.h>

#include "engine/lane_moves.h"
#include "memory/host_mover.h"

namespace tcpx {
namespace {

class Made final : public Path {
 public:
  explicit Made(bool same_host_only = false) : same_host_only_(same_host_only) {}
  LaneTraits traits() const override { return {}; }
  bool offer(const PathPeer& peer) const override { return peer.same_host || !same_host_only_; }
  std::unique_ptr<Lane> make_lane(LaneParts, Loop&, LaneSink&) const override { return nullptr; }

 private:
  const bool same_host_only_;
};

template <bool same_host_only>
PathProbe runs(const EngineOptions&, const Log&) {
  PathProbe out;
  out.path = std::make_unique<Made>(same_host_only);
  return out;
}
template <PathProbe::IfNot if_not>
PathProbe does_not(const EngineOptions&, const Log&) {
  PathProbe out;
  out.why = Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE, "no such device");
  out.if_not = if_not;
  return out;
}

using enum PathProbe::IfNot;
constexpr wire::PathMask kIpc = wire::kIpcPath, kNet = wire::kNetPath, kTcp = wire::kTcpPath;
constexpr PathRow kAll[] = {
    {"ipc", kIpc, runs<true>}, {"net", kNet, runs<false>}, {"tcp", kTcp, runs<false>}};
constexpr PathRow kNoNet[] = {
    {"ipc", kIpc, runs<true>}, {"net", kNet, does_not<kGoOn>}, {"tcp", kTcp, runs<false>}};
constexpr PathRow kWrongNet[] = {{"net", kNet, does_not<kFail>}, {"tcp", kTcp, runs<false>}};

struct Wished {
  EngineOptions options;
  PathWish wish;
  Paths paths;
  Status status;

  Wished(std::span<const PathRow> table, const std::string& allow, const std::string& require = "")
      : paths(table) {
    options.allow_path = allow;
    options.require_path = require;
    wish = PathWish::of(table, options);
    status = paths.open(options, wish, Log());
  }
};

TEST(PathsTable, OffersWhatIsAllowedAndFitsThePeer) {
  Wished all(kAll, "tcp,net,ipc");
  ASSERT_TRUE(all.status.ok());
  EXPECT_EQ(all.paths.offer({.same_host = true}), kIpc | kNet | kTcp);
  EXPECT_EQ(all.paths.offer({.same_host = false}), kNet | kTcp);
  EXPECT_EQ(Wished(kAll, "tcp,ipc").paths.offer({true}), kIpc | kTcp);
  EXPECT_EQ(Wished(kAll, "tcp,net", "net").paths.offer({true}), kNet);
}

TEST(PathsTable, ChoosesTheBestThatBothHave) {
  Wished all(kAll, "tcp,net,ipc"), no_net(kNoNet, "tcp,net,ipc");
  const Path* ipc = all.paths.choose(kIpc | kNet | kTcp);
  const Path* net = all.paths.choose(kNet | kTcp);
  const Path* tcp = all.paths.choose(kTcp);
  EXPECT_TRUE(ipc != nullptr && net != nullptr && tcp != nullptr);
  EXPECT_TRUE(ipc != net && net != tcp);
  EXPECT_EQ(all.paths.choose(0x8000), nullptr) << "of a later engine";
  EXPECT_EQ(no_net.paths.choose(kNet | kTcp), no_net.paths.choose(kTcp));
}

TEST(PathsTable, AWishSaysWhetherTheStreamWillDo) {
  EXPECT_TRUE(Wished(kAll, "tcp,net").wish.accepts_stream());
  EXPECT_FALSE(Wished(kAll, "net,ipc").wish.accepts_stream());
  Wished required(kAll, "tcp,net", "net");
  EXPECT_FALSE(required.wish.accepts_stream());
  EXPECT_EQ(required.wish.text(), "require_path is net");
}

TEST(PathsTable, WhatIsMissingIsAnErrorWhereNothingElseWillDo) {
  EXPECT_TRUE(Wished(kNoNet, "tcp,net").status.ok());
  EXPECT_EQ(Wished(kNoNet, "tcp,net", "net").status.text(), "no such device");
  EXPECT_EQ(Wished(kNoNet, "net").status.text(), "no such device");
  EXPECT_EQ(Wished(kWrongNet, "tcp,net").status.text(), "no such device") << "it was asked for";
  Status none = Wished(kWrongNet, "ipc,tcp", "ipc").status;
  EXPECT_EQ(none.code(), TCPX_PATH_UNAVAILABLE);
  EXPECT_EQ(none.text(), "require_path is ipc, but the paths of this build are net, tcp");
}

TEST(PathsTable, SaysWhyThereIsNoBetterPath) {
  Wished no_net(kNoNet, "tcp,net,ipc"), two(kNoNet, "tcp,net"), all(kAll, "tcp,net");
  EXPECT_EQ(no_net.paths.why_not_better("ipc", ""), "");
  EXPECT_EQ(no_net.paths.why_not_better("tcp", ""),
            "; no ipc path: the peer has none; no net path: no such device");
  EXPECT_EQ(two.paths.why_not_better("tcp", ""),
            "; no ipc path: it is not allowed (allow_path); no net path: no such device");
  EXPECT_EQ(all.paths.why_not_better("net+tcp", "a comm failed"),
            "; no ipc path: it is not allowed (allow_path); no net path: a comm failed");
}

// Whatever the mover could leave where it is; what the mover has no slots for is not reached.
TEST(PathsTable, MemoryThatAPathDoesNotServeGoesThroughASlot) {
  struct Nobody final : MoveWatcher {
    bool looks() const noexcept override { return true; }
    void look_now() noexcept override {}
  } nobody;
  HostMovers movers(false);
  std::unique_ptr<Mover> mover = movers.make(MoverFor::kBeside, nobody);
  const auto share = std::make_shared<SlotShare>();
  const Place host, cuda{Place::Kind::kCuda, 0};
  LaneTraits traits;
  EXPECT_FALSE(LaneMoves(mover.get(), 4, traits, share).stages(host));
  EXPECT_TRUE(LaneMoves(mover.get(), 4, traits, share).serves(host));
  EXPECT_FALSE(LaneMoves(mover.get(), 4, traits, share).serves(cuda));
  traits.places = PlaceKinds(Place::Kind::kCuda);
  EXPECT_TRUE(LaneMoves(mover.get(), 4, traits, share).serves(cuda));
  EXPECT_TRUE(LaneMoves(mover.get(), 4, traits, share).stages(host));
  traits.places = PlaceKinds(Place::Kind::kCuda) | PlaceKinds(Place::Kind::kHost);
  EXPECT_FALSE(LaneMoves(mover.get(), 4, traits, share).stages(host));
  EXPECT_FALSE(LaneMoves(mover.get(), 4, traits, share).stages(cuda));
}

}  // namespace
}  // namespace tcpx
