// Lanes, their sinks and their carriers are used in the exclusive section of their loop alone: in
// builds that check it, who calls one of them from outside ends the process.
#include "path/inside.h"

#include <gtest/gtest.h>

#include "core_pair.h"
#include "path/net/net_carrier.h"
#include "path/net/plugin.h"

#if defined(TCPX_CHECKS)

namespace tcpx {
namespace {

struct FromOutside : testing::Test {
  CorePair pair{64u << 10};
  std::shared_ptr<TransferState> transfer = pair.prepare(TCPX_WRITE);
  PeerLane* lane = nullptr;

  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    ASSERT_TRUE(transfer->peer->wait_connected(now_ns() + 10 * kSecond).ok());
    lane = *transfer->peer->lanes().begin();
  }
};

TEST_F(FromOutside, FactsOfALaneMayBeAskedFor) {
  EXPECT_TRUE(lane->open());
  EXPECT_TRUE(lane->settled());
  EXPECT_TRUE(lane->idle());
  EXPECT_FALSE(lane->lane().interface().empty());
  lane->pings().ask();
  EXPECT_EQ(lane->unread_since(), 0);
}

TEST_F(FromOutside, InsideNothingIsWrong) {
  EXPECT_TRUE(lane->in_loop([&] {
    lane->fill();
    EXPECT_EQ(lane->stop(*transfer, 1), 0u);
    EXPECT_GT(lane->lane().payload_credit(), 0u);
  }));
}

TEST_F(FromOutside, ALaneIsNotUsed) {
  EXPECT_DEATH((void)lane->lane().payload_credit(), "");
  EXPECT_DEATH((void)lane->lane().moving(), "");
  EXPECT_DEATH(lane->lane().flush(1), "");
  EXPECT_DEATH(lane->lane().close({}), "");
}

TEST_F(FromOutside, ItsSinkIsNotUsed) {
  EXPECT_DEATH(lane->fill(), "");
  EXPECT_DEATH((void)lane->on_frame({}, {}).ok(), "");
  EXPECT_DEATH(lane->on_idle(), "");
}

TEST_F(FromOutside, NoFenceIsAskedFor) {
  EXPECT_DEATH((void)lane->stop(*transfer, 1), "");
  EXPECT_DEATH((void)lane->revoke(pair.local_region), "");
  EXPECT_DEATH(lane->shut({}), "");
}

#ifdef TCPX_TEST_EMULATOR_PATH
TEST(FromOutsideNet, ACarrierIsNotUsed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  // The probe forks: before there are other threads, which ThreadSanitizer does not bear.
  net::NetCarrierSettings settings;
  ASSERT_TRUE(net::Plugin::load({TCPX_TEST_EMULATOR_PATH, {}}, &settings.plugin).ok());
  std::unique_ptr<Loop> loop;
  ASSERT_TRUE(Loop::create({}, &loop).ok());
  settings.loop = loop.get();
  net::NetCarrier carrier(settings);
  loop->run_exclusive([&] { EXPECT_EQ(carrier.credit(), 0u); });
  EXPECT_DEATH((void)carrier.credit(), "");
  EXPECT_DEATH((void)carrier.moving(), "");
  Work left = Work::kNone;
  EXPECT_DEATH((void)carrier.poll(&left).ok(), "");
  loop->run_exclusive([&] { carrier.close(); });
  EXPECT_TRUE(loop->stop());
}
#endif

}  // namespace
}  // namespace tcpx

#endif
