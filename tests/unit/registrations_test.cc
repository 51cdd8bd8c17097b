// Memory as a plugin knows it: by region, once, and not a moment longer than the region lives.
#include "path/net/registrations.h"

#include <gtest/gtest.h>

#include <map>

#include "path/net/receive_state.h"

namespace tcpx::net {
namespace {

// Only registers. Handles are numbers.
class Registrar final : public PluginCalls {
 public:
  struct Range {
    uint8_t* base;
    uint64_t length;
  };
  std::map<uintptr_t, Range> live;
  uintptr_t last = 0;
  int calls = 0;
  bool refuses = false;

  nccl::Result reg_mr(void*, void* data, size_t size, int, void** mhandle) override {
    ++calls;
    if (refuses) return nccl::kSystemError;
    live[++last] = {static_cast<uint8_t*>(data), size};
    *mhandle = reinterpret_cast<void*>(last);
    return nccl::kSuccess;
  }
  nccl::Result dereg_mr(void*, void* mhandle) override {
    EXPECT_EQ(live.erase(reinterpret_cast<uintptr_t>(mhandle)), 1u) << "never registered, or twice";
    return nccl::kSuccess;
  }

  int version() const override { return 7; }
  std::string name() const override { return "registrar"; }
  bool consumes() const override { return false; }
  nccl::Result init(nccl::Logger) override { return nccl::kInternalError; }
  nccl::Result devices(int*) override { return nccl::kInternalError; }
  nccl::Result properties(int, DeviceProperties*) override { return nccl::kInternalError; }
  nccl::Result listen(int, void*, void**) override { return nccl::kInternalError; }
  nccl::Result connect(int, void*, void**) override { return nccl::kInternalError; }
  nccl::Result accept(void*, void**, nccl::DeviceHandle**) override { return nccl::kInternalError; }
  nccl::Result isend(void*, void*, size_t, int, void*, void**) override {
    return nccl::kInternalError;
  }
  nccl::Result irecv(void*, void*, size_t, int, void*, void**) override {
    return nccl::kInternalError;
  }
  nccl::Result test(void*, int*, int*) override { return nccl::kInternalError; }
  nccl::Result consumed(void*, void*) override { return nccl::kInternalError; }
  nccl::Result close_send(void*) override { return nccl::kInternalError; }
  nccl::Result close_recv(void*) override { return nccl::kInternalError; }
  nccl::Result close_listen(void*) override { return nccl::kInternalError; }
};

uint8_t* address(uintptr_t value) {
  return reinterpret_cast<uint8_t*>(value);
}

// Addresses that nobody follows.
struct RegistrationsTest : testing::Test {
  Registrar plugin;
  Registrations registrations{plugin, nccl::kPtrCuda};
  const RegionExtent region{1 << 23, address(0x10000), 1 << 20};
  const RegionExtent same_memory{(1 << 23) + 1, region.base, region.length};
  ~RegistrationsTest() override {
    registrations.close();
    EXPECT_TRUE(plugin.live.empty());
  }
};

TEST_F(RegistrationsTest, ARegionIsRegisteredOnce) {
  Registrations::Slice* slice = registrations.find(region, region.base + 4096, 100);
  ASSERT_NE(slice, nullptr);
  EXPECT_EQ(slice->base, region.base);
  EXPECT_EQ(slice->length, region.length);
  EXPECT_EQ(registrations.find(region, region.base + 500'000, 4096), slice);
  EXPECT_EQ(plugin.calls, 1);
  EXPECT_NE(registrations.find(same_memory, region.base, 1), slice) << "it may go before";
  EXPECT_EQ(registrations.find(region, region.base, 1), slice);
  EXPECT_EQ(plugin.calls, 2);
}

TEST_F(RegistrationsTest, OnlyWholePagesOfDeviceMemory) {
  RegionExtent odd{5 << 22, address(0x10001), 3 * 4096};
  EXPECT_EQ(registrations.find(odd, odd.base, 1), nullptr);
  EXPECT_EQ(registrations.find(odd, address(0x12fff), 2), nullptr) << "runs into the end";
  Registrations::Slice* slice = registrations.find(odd, address(0x11000), 2 * 4096);
  ASSERT_NE(slice, nullptr);
  EXPECT_EQ(slice->base, address(0x11000));
  EXPECT_EQ(slice->length, 2u * 4096);
  Registrations host{plugin, nccl::kPtrHost};
  ASSERT_NE(host.find(odd, odd.base, odd.length), nullptr);
  host.close();
}

// 5 GiB: whatever is asked for lies in one slice, and a slice is what an int can tell.
TEST_F(RegistrationsTest, LargeRegionsAreSliced) {
  RegionExtent large{7 << 22, address(uintptr_t{1} << 40), uint64_t{5} << 30};
  constexpr uint64_t kMost = 16 << 20;
  for (uint64_t at = 0; at + kMost <= large.length; at += kMost - 4096) {
    Registrations::Slice* slice = registrations.find(large, large.base + at, kMost);
    ASSERT_NE(slice, nullptr);
    ASSERT_LE(slice->length, uint64_t{1} << 30);
    ASSERT_LE(slice->base, large.base + at);
    ASSERT_LE(large.base + at + kMost, slice->base + slice->length);
  }
  EXPECT_EQ(plugin.calls, 6);
  registrations.forget(large.id);
  EXPECT_TRUE(plugin.live.empty());
}

TEST_F(RegistrationsTest, AForgottenRegionIsGoneWhenItsLastUseEnds) {
  Registrations::Slice* other = registrations.find(same_memory, region.base, 1);
  Registrations::Slice* slice = registrations.find(region, region.base, 1);
  slice->uses += 2;
  registrations.forget(region.id);
  EXPECT_EQ(plugin.live.size(), 2u);
  // The id comes back (tcpx_resume) while a request of before is under way.
  Registrations::Slice* again = registrations.find(region, region.base, 1);
  EXPECT_NE(again, slice);
  registrations.release(slice);
  EXPECT_EQ(plugin.live.size(), 3u);
  registrations.release(slice);
  EXPECT_EQ(plugin.live.size(), 2u);
  EXPECT_EQ(registrations.find(region, region.base, 1), again);
  EXPECT_EQ(registrations.find(same_memory, region.base, 1), other);
}

TEST_F(RegistrationsTest, ARefusalIsRemembered) {
  plugin.refuses = true;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(registrations.find(region, region.base, 1), nullptr);
  EXPECT_EQ(plugin.calls, 1);
  EXPECT_NE(registrations.refusal().find("cannot register 1048576 bytes"), std::string::npos);
  plugin.refuses = false;
  registrations.forget(region.id);
  EXPECT_NE(registrations.find(region, region.base, 1), nullptr) << "it is another one now";
}

TEST_F(RegistrationsTest, AListIsCoveredIfEveryRequestIsInOnePart) {
  const iovec parts[] = {{region.base, 8192}, {region.base + 40'000, 4096}};
  PartRegions regions;
  regions.add(0, region);
  regions.add(1, same_memory);
  EXPECT_TRUE(registrations.cover(parts, regions, 12'288, 4096));
  EXPECT_EQ(plugin.calls, 2);
  EXPECT_FALSE(registrations.cover(parts, regions, 12'288, 3000)) << "one is in both";
  EXPECT_FALSE(registrations.cover(parts, {}, 12'288, 4096)) << "in no region";
  uint8_t* data = nullptr;
  ASSERT_NE(registrations.find({parts, regions, 8200, 88}, &data), nullptr);
  EXPECT_EQ(data, region.base + 40'008);
  EXPECT_EQ(registrations.find({parts, regions, 8200, 88}, &data)->region, same_memory.id);
}

TEST(PartRegionsTest, TellWhichRegionAPartLiesIn) {
  uint8_t memory[30];
  PartRegions regions;
  EXPECT_EQ(regions.of(0), nullptr);
  const RegionExtent a{1, memory, 10}, b{2, memory + 10, 10};
  for (size_t part = 0; part < 9; ++part) regions.add(part, part / 3 == 1 ? b : a);
  EXPECT_EQ(regions.list.size(), 3u);
  for (size_t part = 0; part < 9; ++part) EXPECT_EQ(regions.of(part)->id, part / 3 == 1 ? 2u : 1u);
  EXPECT_EQ(regions.around(memory + 10)->id, 2u);
  EXPECT_EQ(regions.around(memory + 20), nullptr);
}

// docs/data-path.md has the same table.
TEST(ReceiveStates, OnlyTheseFollowEachOther) {
  using enum ReceiveState;
  const std::pair<ReceiveState, ReceiveState> ways[] = {
      {kPosted, kHere}, {kHere, kMoving}, {kHere, kMoved}, {kMoving, kMoved}, {kMoved, kConsumed}};
  const ReceiveState all[] = {kPosted, kHere, kMoving, kMoved, kConsumed};
  for (ReceiveState from : all)
    for (ReceiveState to : all) {
      bool allowed =
          std::find(std::begin(ways), std::end(ways), std::pair(from, to)) != std::end(ways);
      ReceiveState state = from;
      EXPECT_EQ(advance(&state, to), allowed) << name_of(from) << " to " << name_of(to);
      EXPECT_EQ(state, allowed ? to : from);
    }
}

}  // namespace
}  // namespace tcpx::net
