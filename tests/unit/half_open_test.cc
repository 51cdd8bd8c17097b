#include "session/half_open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tcpx {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Nanos kNow = 100 * kSecond;

wire::Address v4(uint8_t last) {
  return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last}, 1, 0};
}

Visitor visitor(uint32_t id, Standing standing, Nanos idle, uint8_t host = 1) {
  return {id, source_of(v4(host)), standing, kNow - idle};
}

TEST(HalfOpen, WhoStoodStillLongGoesAtOnceUnderPressure) {
  std::vector<Visitor> visitors = {
      visitor(1, Standing::kSilent, 2 * kSecond), visitor(2, Standing::kSaidHello, 1 * kSecond),
      visitor(3, Standing::kSilent, 900 * kMilli), visitor(4, Standing::kProved, 9 * kSecond)};
  EXPECT_THAT(choose_leaving(visitors, kNow), ElementsAre(1, 2));
}

TEST(HalfOpen, NobodyInTheMiddleOfItsRoundTripHasToLeave) {
  std::vector<Visitor> visitors = {
      visitor(1, Standing::kSilent, 1 * kMilli), visitor(2, Standing::kSaidHello, 4 * kMilli),
      visitor(3, Standing::kJoining, 19 * kMilli), visitor(4, Standing::kProved, 500 * kMilli)};
  EXPECT_THAT(choose_leaving(visitors, kNow), IsEmpty()) << "the newcomer waits";
}

// Strangers faster than a round trip: with all places theirs, an honest newcomer would be turned
// away.
TEST(HalfOpen, WhoSaysNothingHasLessTimeThanARoundTrip) {
  std::vector<Visitor> visitors = {visitor(1, Standing::kSaidHello, 4 * kMilli),
                                   visitor(2, Standing::kSilent, 3 * kMilli),
                                   visitor(3, Standing::kSilent, 1 * kMilli)};
  EXPECT_THAT(choose_leaving(visitors, kNow), ElementsAre(2));
}

TEST(HalfOpen, OfOneSourceTheLeastBelievedAndOldestGoes) {
  std::vector<Visitor> visitors = {
      visitor(1, Standing::kSaidHello, 500 * kMilli), visitor(2, Standing::kSilent, 100 * kMilli),
      visitor(3, Standing::kSilent, 200 * kMilli), visitor(4, Standing::kSpoke, 400 * kMilli)};
  EXPECT_THAT(choose_leaving(visitors, kNow), ElementsAre(3));
}

TEST(HalfOpen, ASourceWithManyPlacesGivesWayToOneWithFew) {
  std::vector<Visitor> visitors;
  for (uint32_t i = 0; i < 10; ++i)
    visitors.push_back(visitor(i, Standing::kSaidHello, (100 + i) * kMilli, 1));
  visitors.push_back(visitor(99, Standing::kSilent, 900 * kMilli, 2));
  EXPECT_THAT(choose_leaving(visitors, kNow), ElementsAre(9));
}

// Strangers from many addresses hold one place each, a client with lanes holds some.
TEST(HalfOpen, ASourceWithinItsShareIsJudgedByWhatItSaid) {
  std::vector<Visitor> visitors;
  for (uint32_t i = 0; i < 12; ++i)
    visitors.push_back(
        visitor(i, Standing::kSilent, (100 + i) * kMilli, static_cast<uint8_t>(10 + i)));
  for (uint32_t i = 20; i < 23; ++i)
    visitors.push_back(visitor(i, Standing::kSaidHello, 900 * kMilli, 1));
  EXPECT_THAT(choose_leaving(visitors, kNow), ElementsAre(11));
}

TEST(HalfOpen, ALaneOfASessionStaysLongest) {
  std::vector<Visitor> visitors = {visitor(1, Standing::kJoining, 900 * kMilli, 1),
                                   visitor(2, Standing::kJoining, 800 * kMilli, 1),
                                   visitor(3, Standing::kSaidHello, 100 * kMilli, 2)};
  EXPECT_THAT(choose_leaving(visitors, kNow), ElementsAre(3));
}

TEST(HalfOpen, ALargeTableIsNotSearchedForEveryNewcomer) {
  std::vector<Visitor> visitors;
  for (uint32_t i = 0; i < 320; ++i)
    visitors.push_back(visitor(i, Standing::kSilent, 50 * kMilli + i * kMicro));
  EXPECT_EQ(choose_leaving(visitors, kNow).size(), 20u);
}

TEST(HalfOpen, AnIpv6NetworkIsOneSource) {
  wire::Address a, b, c;
  a.ip = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1, 1};
  b.ip = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 1, 2, 3, 4};
  c.ip = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 2, 1};
  EXPECT_EQ(source_of(a), source_of(b));
  EXPECT_NE(source_of(a), source_of(c));
  EXPECT_NE(source_of(v4(1)), source_of(v4(2)));
}

}  // namespace
}  // namespace tcpx
