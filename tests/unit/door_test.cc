// The door by itself: real sockets at it, and an owner that writes down what it is told.
#include "session/door.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>

#include "../fault/raw_socket.h"
#include "session/sockets.h"
#include "wire_test_util.h"

namespace tcpx {
namespace {

using test::eventually;
using test::Ms;
using test::patience;
using test::RawSocket;

constexpr uint32_t kPlaces = 4;

class Host final : public HandshakeHost {
 public:
  bool requires_auth() const override { return true; }
  wire::Uid uid() const override { return {}; }
  Status key_for(const wire::Hello& hello, auth::Key*) override {
    if (hello.key_id == kThrows) throw std::bad_alloc();
    return {};  // a key of zeros
  }
  Status welcome_for(const wire::Hello&, const wire::Address&, const auth::Key&,
                     wire::Welcome*) override {
    return {};
  }
  void welcome_over(uint64_t) noexcept override {}
  static constexpr uint64_t kThrows = 13;
};

class Owner final : public DoorOwner {
 public:
  bool enter(Guest guest) override {
    std::lock_guard lock(mu);
    guests.push_back(std::move(guest));
    return true;
  }
  void refused(const wire::Address&, const Status& status) override {
    last_refusal = status.code();
    ++refusals;
  }
  void left() override { ++lefts; }
  void late(const wire::Address&) override { ++lates; }
  void crowded(size_t count) override {
    evicted += count;
    turned_away += count == 0;
  }
  void cannot_accept(int, Nanos) override { ++failures; }
  void failed(const char*, const Status&) noexcept override { ++failures; }
  size_t entered() {
    std::lock_guard lock(mu);
    return guests.size();
  }
  std::mutex mu;
  std::vector<Guest> guests;
  std::atomic<tcpx_code> last_refusal{TCPX_OK};
  std::atomic<size_t> refusals{0}, lefts{0}, lates{0}, evicted{0}, turned_away{0}, failures{0};
};

class DoorTest : public ::testing::Test {
 protected:
  void open(Nanos timeout = 60 * kSecond) {
    wire::Address loopback{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}, 0, 0}, bound;
    std::vector<Fd> listeners(1);
    ASSERT_TRUE(open_listener(loopback, {}, &listeners[0], &bound).ok());
    port = bound.port;
    door = std::make_unique<Door>(owner, host, Door::Settings{timeout, kPlaces, 1});
    ASSERT_TRUE(door->start(std::move(listeners)).ok());
  }
  static std::array<uint8_t, wire::kHelloBytes> hello(bool knocks = true, uint64_t key_id = 0) {
    wire::Hello out;
    out.chunk_bytes = 512 << 10;
    out.key_id = key_id;
    std::array<uint8_t, wire::kHelloBytes> bytes;
    encode(out, bytes);
    if (knocks) {
      auto knocked = std::span(bytes).first<wire::kKnockedBytes>();
      EXPECT_TRUE(auth::make_knock(auth::Key(), knocked, &out.knock).ok());
      encode(out, bytes);
    }
    return bytes;
  }
  static bool soon(const std::function<bool()>& holds) {
    return eventually(holds, patience(3'000));
  }

  Host host;
  Owner owner;
  uint16_t port = 0;
  std::unique_ptr<Door> door;
};

TEST_F(DoorTest, WhoKnocksIsChallengedAndHandedOnWithItsSocketWhole) {
  open();
  RawSocket client(port);
  ASSERT_TRUE(client.send(hello()));
  std::array<uint8_t, wire::kChallengeBytes> challenge;
  ASSERT_TRUE(client.receive(challenge));
  ASSERT_TRUE(soon([&] { return owner.entered() == 1; }));
  EXPECT_EQ(door->visitors(), 0u);
  const int fd = owner.guests[0].handshake->fd();
  linger resets{1, 1};
  socklen_t length = sizeof resets;
  ASSERT_EQ(getsockopt(fd, SOL_SOCKET, SO_LINGER, &resets, &length), 0);
  EXPECT_EQ(resets.l_onoff, 0) << "what is sent last would be lost";
}

TEST_F(DoorTest, AHelloMayComeInParts) {
  open();
  RawSocket client(port);
  const auto bytes = hello();
  for (size_t at = 0; at < bytes.size(); at += 64) {
    ASSERT_TRUE(client.send(std::span(bytes).subspan(at, 64)));
    EXPECT_TRUE(soon([&] { return door->visitors() == (at + 64 < bytes.size() ? 1u : 0u); }));
  }
  EXPECT_TRUE(soon([&] { return owner.entered() == 1; }));
}

TEST_F(DoorTest, WhoDoesNotKnockIsToldWhyATimeOrTwoAndThenHungUpOn) {
  open();
  size_t told = 0;
  for (int i = 0; i < 40; ++i) {
    RawSocket stranger(port);
    stranger.send(hello(false));
    told += stranger.drain(patience(3'000)) == wire::kChallengeBytes;
  }
  EXPECT_TRUE(soon([&] { return owner.refusals == 40; }));
  EXPECT_EQ(owner.last_refusal, TCPX_AUTH_FAILED);
  EXPECT_EQ(owner.entered(), 0u);
  EXPECT_GE(told, static_cast<size_t>(AnswerBudget::kBurst));
  EXPECT_LT(told, 40u);
}

TEST_F(DoorTest, WhatIsNoHelloGetsNoAnswer) {
  open();
  RawSocket stranger(port);
  stranger.send(std::string(wire::kHelloBytes, 'x'));
  EXPECT_EQ(stranger.drain(patience(3'000)), 0u);
  EXPECT_TRUE(soon([&] { return owner.refusals == 1; }));
  EXPECT_EQ(owner.last_refusal, TCPX_PROTOCOL_ERROR);
}

TEST_F(DoorTest, SilentOnesLeaveForNewcomersAndAreReset) {
  open();
  std::vector<RawSocket> strangers;
  for (uint32_t i = 0; i < kPlaces; ++i) strangers.emplace_back(port);
  ASSERT_TRUE(soon([&] { return door->visitors() == kPlaces; }));
  std::vector<RawSocket> newcomers;
  ASSERT_TRUE(soon([&] {
    newcomers.emplace_back(port);  // the first may be turned away: all are new then
    return owner.evicted >= 1;
  }));
  EXPECT_TRUE(soon([&] { return door->visitors() == kPlaces; }));
  size_t reset = 0;
  for (RawSocket& stranger : strangers) {
    uint8_t byte;
    if (::recv(stranger.fd(), &byte, 1, MSG_DONTWAIT) < 0 && errno == ECONNRESET) ++reset;
  }
  EXPECT_GE(reset, 1u);
  // One who comes with all places taken, and has its hello at hand. Where all of them are new it is
  // turned away, as any newcomer, and comes again.
  EXPECT_TRUE(soon([&] {
    RawSocket client(port);
    std::array<uint8_t, wire::kChallengeBytes> challenge;
    return client.send(hello()) && client.receive(challenge);
  }));
  EXPECT_TRUE(soon([&] { return owner.entered() == 1; }));
}

TEST_F(DoorTest, WhoGoesAndWhoIsLateIsForgotten) {
  open(patience(300).count() * kMilli);
  { RawSocket gone(port); }
  EXPECT_TRUE(soon([&] { return owner.lefts == 1; }));
  RawSocket silent(port), half(port);
  const auto bytes = hello();
  half.send(std::span(bytes).first(100));
  EXPECT_TRUE(silent.closes(patience(3'000)) && half.closes(patience(3'000)));
  EXPECT_TRUE(soon([&] { return owner.lates == 2; }));
  EXPECT_EQ(door->visitors(), 0u);
}

// No memory for one is not the end of the door.
TEST_F(DoorTest, WhatIsThrownForOneIsThatOnesEnd) {
  open();
  RawSocket unlucky(port);
  unlucky.send(hello(true, Host::kThrows));
  EXPECT_TRUE(unlucky.closes(patience(3'000)));
  EXPECT_TRUE(soon([&] { return owner.failures == 1; }));
  RawSocket client(port);
  ASSERT_TRUE(client.send(hello()));
  EXPECT_TRUE(soon([&] { return owner.entered() == 1; }));
}

TEST_F(DoorTest, StoppingClosesWhoeverWaits) {
  open();
  RawSocket stranger(port);
  ASSERT_TRUE(soon([&] { return door->visitors() == 1; }));
  door->stop();
  EXPECT_TRUE(stranger.closes(patience(3'000)));
  EXPECT_EQ(door->visitors(), 0u);
  EXPECT_THROW(RawSocket{port}, std::runtime_error) << "nobody listens any more";
}

}  // namespace
}  // namespace tcpx
