// What a hello has to show at the door, and how many of those that do not are told why.
#include "session/greeting.h"

#include <gtest/gtest.h>

#include "session/answer_budget.h"
#include "wire_test_util.h"

namespace tcpx {
namespace {

using test::counting_from;
using test::fails_with;

auth::Key key_of(uint8_t seed) {
  auth::Key key;
  std::fill(key.mutable_bytes().begin(), key.mutable_bytes().end(), seed);
  return key;
}

class Host : public GreetingHost {
 public:
  bool requires_auth() const override { return authenticated; }
  wire::Uid uid() const override { return counting_from<16>(0x50); }
  Status key_for(const wire::Hello& hello, auth::Key* key) override {
    ++asked;
    if (hello.key_id != 0) return peer_error(TCPX_AUTH_FAILED, "another key");
    *key = key_of(1);
    return {};
  }
  bool authenticated = true;
  int asked = 0;
};

wire::Hello some_hello() {
  wire::Hello hello;
  hello.chunk_bytes = 512 << 10;
  return hello;
}

Status read(Host& host, wire::Hello hello, uint8_t key_seed, Greeting* out) {
  std::array<uint8_t, wire::kHelloBytes> bytes;
  encode(hello, bytes);
  auto knocked = std::span(bytes).first<wire::kKnockedBytes>();
  EXPECT_TRUE(auth::make_knock(key_of(key_seed), knocked, &hello.knock).ok());
  encode(hello, bytes);
  return read_greeting(host, bytes, out);
}
Status read(Host& host, const wire::Hello& hello, uint8_t key_seed = 1) {
  Greeting out;
  return read(host, hello, key_seed, &out);
}

TEST(Greeting, OfOneWhoHasTheKeyIsTakenAsItWasSaid) {
  Host host;
  Greeting greeting;
  wire::Hello hello = some_hello();
  hello.target_uid = host.uid();
  ASSERT_TRUE(read(host, hello, 1, &greeting).ok());
  EXPECT_EQ(greeting.hello.target_uid, host.uid());
  std::array<uint8_t, wire::kHelloBytes> bytes;
  encode(greeting.hello, bytes);
  EXPECT_EQ(greeting.bytes, bytes);
  EXPECT_TRUE(std::ranges::equal(greeting.key.bytes(), key_of(1).bytes()));
}

TEST(Greeting, WithAnotherKeyIsRefused) {
  Host host;
  EXPECT_TRUE(
      fails_with(read(host, some_hello(), 2), TCPX_AUTH_FAILED, "does not hold the secret"));
  wire::Hello hello = some_hello();
  hello.key_id = 7;
  EXPECT_TRUE(fails_with(read(host, hello), TCPX_AUTH_FAILED, "another key"));
}

TEST(Greeting, IsLookedAtOnlyIfItIsOneAndMeantForUs) {
  Host host;
  wire::Hello hello = some_hello();
  hello.lanes = 1000;
  EXPECT_EQ(read(host, hello).code(), TCPX_PROTOCOL_ERROR);
  hello = some_hello();
  hello.versions = {90, 99};
  EXPECT_EQ(read(host, hello).code(), TCPX_VERSION_MISMATCH);
  hello = some_hello();
  hello.target_uid = counting_from<16>(0x60);
  EXPECT_EQ(read(host, hello).code(), TCPX_NOT_FOUND);
  hello = some_hello();
  hello.authenticated = false;
  EXPECT_TRUE(fails_with(read(host, hello), TCPX_AUTH_FAILED, "auth=off"));
  EXPECT_EQ(host.asked, 0) << "no key is looked up for these";
}

TEST(Greeting, NeedsNoKnockWithAuthOff) {
  Host host;
  host.authenticated = false;
  wire::Hello hello = some_hello();
  hello.authenticated = false;
  EXPECT_TRUE(read(host, hello, 2).ok());
}

// A client of other versions too must be able to read why, so the answer is of a version it has.
TEST(Greeting, ARefusalIsSaidInAVersionOfTheClient) {
  Host host;
  Greeting greeting;
  wire::Hello hello = some_hello();
  hello.versions.newest = wire::kWireVersion + 5;
  Status status = read(host, hello, 2, &greeting);
  wire::Challenge challenge = refusing_challenge(host, greeting.hello, status);
  EXPECT_EQ(challenge.version, wire::kWireVersion);
  EXPECT_EQ(challenge.status, TCPX_AUTH_FAILED);
  EXPECT_TRUE(challenge.authenticated);

  hello.versions.oldest = wire::kWireVersion + 1;
  Greeting none;
  status = read(host, hello, 1, &none);
  challenge = refusing_challenge(host, none.hello, status);
  EXPECT_EQ(challenge.status, TCPX_VERSION_MISMATCH);
  EXPECT_EQ(challenge.version, wire::kWireVersion) << "our newest, for it to know";
}

// ---- answers ------------------------------------------------------------------------------------

Source source(uint8_t host, uint8_t net = 0) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, net, host};
}

int answers(AnswerBudget& budget, const Source& who, int asked, Nanos now) {
  int given = 0;
  for (int i = 0; i < asked; ++i) given += budget.spend(who, now) ? 1 : 0;
  return given;
}

TEST(AnswerBudget, ASourceGetsSomeAtOnceAndThenFewASecond) {
  AnswerBudget budget(1);
  constexpr Nanos kNow = 100 * kSecond;
  EXPECT_EQ(answers(budget, source(1), 1000, kNow), AnswerBudget::kBurst);
  EXPECT_EQ(answers(budget, source(1), 1000, kNow + kSecond), AnswerBudget::kPerSecond);
  EXPECT_EQ(answers(budget, source(1), 1000, kNow + kSecond), 0);
  EXPECT_EQ(answers(budget, source(1), 1000, kNow + 100 * kSecond), AnswerBudget::kBurst)
      << "what was not used does not add up";
}

TEST(AnswerBudget, AStormDoesNotCostAnotherSourceItsAnswer) {
  AnswerBudget budget(1);
  constexpr Nanos kNow = 100 * kSecond;
  answers(budget, source(1), 1'000'000, kNow);
  EXPECT_TRUE(budget.spend(source(2), kNow));
}

TEST(AnswerBudget, ManySourcesTogetherGetABoundedNumber) {
  AnswerBudget budget(1);
  int given = 0;
  for (int i = 0; i < 65536; ++i)
    given += answers(budget, source(static_cast<uint8_t>(i), static_cast<uint8_t>(i >> 8)), 20,
                     100 * kSecond);
  EXPECT_LE(given, static_cast<int>(AnswerBudget::kPurses * AnswerBudget::kBurst));
  EXPECT_GT(given, static_cast<int>(AnswerBudget::kPurses * AnswerBudget::kBurst / 2))
      << "sources are spread";
}

}  // namespace
}  // namespace tcpx
