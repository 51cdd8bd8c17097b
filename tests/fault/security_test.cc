// Authenticated by default: what a stranger can do to the port, through the real socket.
#include "fault_fixture.h"
#include "raw_client.h"

namespace tcpx::test {
namespace {

class Security : public Fault {
 protected:
  static constexpr Ms kHandshakeTimeout = patience(600);
  void SetUp() override {
    start(fault_options({{"max_half_open", "8"}}));
    target = Target::from_info(engine.connection_info());
  }
  // Whatever was tried: the engine listens and a proper client gets in.
  void TearDown() override {
    RawClient proper(target);
    EXPECT_TRUE(proper.handshake());
    EXPECT_TRUE(proper.ping());
    Fault::TearDown();
  }
  uint32_t good_lanes() {
    tcpx_peer_info info{};
    EXPECT_TRUE(succeeded(engine.peer_info(good_id, &info)));
    return info.lanes;
  }
  Target target;
};

TEST_F(Security, AStrangerWithRandomBytesIsRefusedAndCounted) {
  uint64_t before = count("handshakes_refused");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    RawSocket stranger(target.port);
    std::vector<uint8_t> noise(4096);
    Pattern(seed).fill(noise.data(), noise.size(), 0);
    stranger.send(noise);
    EXPECT_TRUE(stranger.closes(kNoticed));
  }
  EXPECT_TRUE(reaches("handshakes_refused", before + 5)) << counters(engine).dump();
}

TEST_F(Security, AnHttpClientIsRefusedAndCounted) {
  uint64_t before = count("handshakes_refused");
  RawSocket stranger(target.port);
  std::string request =
      "GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: " + std::string(300, 'a') + "\r\n\r\n";
  stranger.send(request);
  EXPECT_TRUE(stranger.closes(kNoticed));
  EXPECT_TRUE(reaches("handshakes_refused", before + 1)) << counters(engine).dump();
}

TEST_F(Security, AWrongKeyIsRefusedAndCounted) {
  uint64_t before = count("auth_failures");
  KeyBytes wrong = target.engine_key;
  wrong[31] ^= 1;
  RawClient client(target);
  EXPECT_FALSE(client.handshake(wrong));
  EXPECT_TRUE(client.closes());
  RawClient zero(target);
  ASSERT_TRUE(zero.send_hello() && zero.receive_challenge());
  EXPECT_TRUE(zero.server_proof_holds(target.engine_key)) << "the server proves itself first";
  zero.send_proof_bytes({});
  EXPECT_FALSE(zero.receive_welcome());
  EXPECT_TRUE(zero.closes());
  EXPECT_TRUE(reaches("auth_failures", before + 2)) << counters(engine).dump();
}

TEST_F(Security, TheServersOwnProofIsNoAnswerToIt) {
  uint64_t before = count("auth_failures");
  RawClient mirror(target);
  ASSERT_TRUE(mirror.send_hello() && mirror.receive_challenge());
  mirror.send_proof_bytes(mirror.challenge.proof);
  EXPECT_FALSE(mirror.receive_welcome());
  EXPECT_TRUE(reaches("auth_failures", before + 1));
}

TEST_F(Security, AnEngineWithAnotherKeyIsToldAuthFailed) {
  Options keyed = fault_options({{"auth_key", "the right key, long enough: 0123456789"}});
  Engine server = make_engine(keyed);
  Engine wrong =
      make_engine(fault_options({{"auth_key", "a wrong key, long enough: 01234567890"}}));
  Engine right = make_engine(keyed);
  wire::ConnectionInfo info;
  auto bytes = server.connection_info();
  std::string_view key = "the right key, long enough: 0123456789";
  ASSERT_TRUE(wire::decode_connection_info(
                  bytes, {reinterpret_cast<const uint8_t*>(key.data()), key.size()}, &info)
                  .ok());
  EXPECT_EQ(info.secret, decltype(info.secret){}) << "a configured key is not in the info";
  std::string address = "127.0.0.1:" + std::to_string(info.addresses.at(0).port);
  tcpx_peer peer = 0;
  ASSERT_TRUE(succeeded(wrong.connect_address(address, &peer)));
  EXPECT_EQ(wrong.peer_wait(peer, kLong).code(), TCPX_AUTH_FAILED);
  ASSERT_TRUE(succeeded(right.connect_address(address, &peer)));
  EXPECT_TRUE(succeeded(right.peer_wait(peer, kLong)));
}

// Between a real client and the engine; keeps what the client said, and may change one byte of what
// it is told.
class Relay {
 public:
  explicit Relay(uint16_t port, std::optional<size_t> change = {})
      : change_(change), relay_([this, port] { run(port); }) {}
  ~Relay() {
    stop_ = true;
    relay_.join();
  }
  std::string address() const { return listener_.address(); }
  std::vector<uint8_t> said() {
    std::lock_guard lock(mutex_);
    return said_;
  }

 private:
  void run(uint16_t port) {
    while (!stop_ && !listener_.waiting(Ms{20})) {
    }
    if (stop_) return;
    RawSocket client = listener_.accept();
    RawSocket server(port);
    uint8_t buffer[4096];
    while (!stop_) {
      pollfd ends[2] = {{client.fd(), POLLIN, 0}, {server.fd(), POLLIN, 0}};
      ::poll(ends, 2, 20);
      for (int i : {0, 1}) {
        if (!(ends[i].revents & (POLLIN | POLLHUP))) continue;
        ssize_t n = ::recv(ends[i].fd, buffer, sizeof buffer, 0);
        if (n <= 0) return;
        std::span<uint8_t> bytes(buffer, static_cast<size_t>(n));
        if (i == 0) {
          std::lock_guard lock(mutex_);
          said_.insert(said_.end(), bytes.begin(), bytes.end());
        } else {
          if (change_ && *change_ >= told_ && *change_ < told_ + bytes.size())
            bytes[*change_ - told_] ^= 1;
          told_ += bytes.size();
        }
        (i == 0 ? server : client).send(bytes);
      }
    }
  }
  RawListener listener_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<uint8_t> said_;
  const std::optional<size_t> change_;  // which byte of the server's
  size_t told_ = 0;                     // bytes of the server's so far
  std::thread relay_;
};

TEST_F(Security, AReplayedHandshakeIsRefusedAndCounted) {
  Options keyed =
      fault_options({{"auth_key", "a key both sides have: 0123456789"}, {"lanes", "1"}});
  Engine server = make_engine(merged({{"port_range", "22100-22199"}}, keyed));
  Engine client = make_engine(keyed);
  std::string_view key = "a key both sides have: 0123456789";
  wire::ConnectionInfo info;
  auto bytes = server.connection_info();
  ASSERT_TRUE(wire::decode_connection_info(
                  bytes, {reinterpret_cast<const uint8_t*>(key.data()), key.size()}, &info)
                  .ok());
  uint16_t port = info.addresses.at(0).port;

  std::vector<uint8_t> said;
  {
    Relay recorder(port);
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(client.connect_address(recorder.address(), &peer)));
    ASSERT_TRUE(succeeded(client.peer_wait(peer, kLong))) << "a relay is just a longer wire";
    said = recorder.said();
    tcpx_peer inbound = 0;  // whoever has gone again is not accepted any more
    ASSERT_TRUE(succeeded(server.accept(&inbound, kLong)));
    ASSERT_TRUE(succeeded(client.disconnect(peer)));
  }
  ASSERT_GE(said.size(), wire::kHelloBytes + wire::kProofMessageBytes);
  said.resize(wire::kHelloBytes + wire::kProofMessageBytes);
  uint64_t before = counter(server, "auth_failures");
  for (int i = 0; i < 3; ++i) {
    RawSocket replay(port);
    ASSERT_TRUE(replay.send(said));
    EXPECT_TRUE(replay.closes(kNoticed));
  }
  EXPECT_TRUE(eventually([&] { return counter(server, "auth_failures") >= before + 3; }))
      << counters(server).dump();
  tcpx_peer inbound = 0;
  EXPECT_TRUE(server.accept(&inbound, Ms{50}).in_progress()) << "nobody got in";
}

// What a relay could gain by: lanes led elsewhere, fewer of them, a small window, the plain path
// instead of the fast one.
TEST_F(Security, AWelcomeThatWasChangedOnTheWayIsRefused) {
  constexpr std::string_view kKey = "a key both sides have: 0123456789";
  Options keyed = fault_options({{"auth_key", std::string(kKey)}, {"lanes", "2"}});
  Engine server = make_engine(merged({{"port_range", "22100-22199"}}, keyed));
  Engine client = make_engine(keyed);
  wire::ConnectionInfo info;
  auto bytes = server.connection_info();
  ASSERT_TRUE(wire::decode_connection_info(
                  bytes, {reinterpret_cast<const uint8_t*>(kKey.data()), kKey.size()}, &info)
                  .ok());
  const std::pair<const char*, size_t> fields[] = {
      {"status", 4}, {"lanes", 8}, {"window", 12}, {"session", 16}, {"chunk_bytes", 25},
      {"name", 32},  {"ip", 111},  {"port", 112},  {"epoch", 424},  {"mac", 470}};
  for (auto [field, offset] : fields) {
    SCOPED_TRACE(field);
    Relay relay(info.addresses.at(0).port, wire::kChallengeBytes + offset);
    tcpx_peer peer = 0;
    ASSERT_TRUE(succeeded(client.connect_address(relay.address(), &peer)));
    Result result = client.peer_wait(peer, kLong);
    EXPECT_EQ(result.code(), TCPX_AUTH_FAILED) << result.text();
    EXPECT_NE(result.text().find("welcome"), std::string::npos) << result.text();
    (void)client.disconnect(peer);
  }
}

TEST_F(Security, ALaneIsNotJoinedToAForeignSession) {
  RawClient first(target), second(target);
  first.hello.lanes = second.hello.lanes = 2;
  second.hello.uid[0] = 0x78;
  ASSERT_TRUE(first.handshake());
  ASSERT_TRUE(second.handshake());
  ASSERT_NE(first.welcome.session, second.welcome.session);
  uint64_t before = count("auth_failures") + count("handshakes_refused");
  auto try_to_join = [&](uint64_t session, const wire::Uid& uid, const KeyBytes& key) {
    RawClient lane(target);
    lane.hello.kind = wire::HelloKind::kJoinLane;
    lane.hello.session = session;
    lane.hello.lane = 1;
    lane.hello.lanes = 2;
    lane.hello.uid = uid;
    bool joined = lane.handshake(key);
    EXPECT_TRUE(joined || lane.closes());
    return joined;
  };
  // The attacker is a peer itself: it holds the engine's secret and its own session's key.
  EXPECT_FALSE(try_to_join(first.welcome.session, second.hello.uid, second.session_key()));
  EXPECT_FALSE(try_to_join(first.welcome.session, first.hello.uid, second.session_key()));
  EXPECT_FALSE(try_to_join(first.welcome.session, first.hello.uid, target.engine_key));
  EXPECT_FALSE(try_to_join(first.welcome.session, first.hello.uid, KeyBytes(32, 0)));
  EXPECT_FALSE(
      try_to_join(first.welcome.session ^ 0x123456, first.hello.uid, second.session_key()));
  EXPECT_TRUE(eventually([&] {
    return count("auth_failures") + count("handshakes_refused") >= before + 5;
  })) << counters(engine).dump();
  EXPECT_TRUE(first.ping() && second.ping()) << "the sessions did not notice";
  EXPECT_TRUE(first.welcome_mac_holds(first.session_key()));
  EXPECT_TRUE(try_to_join(first.welcome.session, first.hello.uid, first.session_key()))
      << "its own lane gets in";
}

TEST_F(Security, ALaneIsJoinedOnceAndOnlyInsideTheAgreedNumber) {
  RawClient first(target);
  first.hello.lanes = 2;
  ASSERT_TRUE(first.handshake());
  ASSERT_EQ(first.welcome.lanes, 2u);
  ASSERT_TRUE(first.welcome_mac_holds(first.session_key()));
  for (uint32_t index : {0u, 2u, 63u}) {
    RawClient lane(target);
    lane.hello = first.hello;
    lane.hello.kind = wire::HelloKind::kJoinLane;
    lane.hello.session = first.welcome.session;
    lane.hello.lane = index;
    EXPECT_FALSE(lane.handshake(first.session_key())) << "lane " << index;
    EXPECT_NE(lane.welcome.status, TCPX_OK) << "it is told why";
    EXPECT_TRUE(lane.welcome_mac_holds(first.session_key())) << "a refusal is signed too";
  }
  EXPECT_TRUE(first.ping());
}

TEST_F(Security, AnotherWireVersionIsToldSoAndCounted) {
  uint64_t before = count("handshakes_refused");
  const wire::VersionRange others[] = {
      {0, 0}, {0, 3}, {99, 99}, {wire::kWireVersion + 1, 99}, {65535, 65535}};
  for (wire::VersionRange versions : others) {
    SCOPED_TRACE(strf("{} to {}", versions.oldest, versions.newest));
    RawClient client(target);
    client.hello.versions = versions;
    ASSERT_TRUE(client.send_hello());
    ASSERT_TRUE(client.receive_challenge()) << "it is told, not just dropped";
    EXPECT_EQ(client.challenge.status, TCPX_VERSION_MISMATCH);
    EXPECT_EQ(client.challenge.version, wire::kWireVersion);
    EXPECT_TRUE(client.closes());
  }
  EXPECT_TRUE(reaches("handshakes_refused", before + std::size(others))) << counters(engine).dump();
}

TEST_F(Security, AClientOfLaterVersionsThatSpeaksOursGetsIn) {
  RawClient client(target);
  client.hello.versions = {wire::kOldestWireVersion, 99};
  EXPECT_TRUE(client.handshake());
  EXPECT_EQ(client.challenge.version, wire::kWireVersion) << "which of them both speak";
  EXPECT_TRUE(client.ping());
}

TEST_F(Security, PathsThatWeDoNotKnowAreNotTakenAndDoNoHarm) {
  RawClient client(target);
  client.hello.paths = 0xffff;
  EXPECT_TRUE(client.handshake());
  EXPECT_EQ(client.welcome.paths & ~(wire::kTcpPath | wire::kNetPath), 0u);
  EXPECT_NE(client.welcome.paths & wire::kTcpPath, 0u);
  EXPECT_TRUE(client.ping());

  RawClient stranger(target);
  stranger.hello.paths = 0x8000;
  EXPECT_FALSE(stranger.handshake()) << "nothing in common";
  EXPECT_EQ(stranger.welcome.status, TCPX_PATH_UNAVAILABLE);
}

// Whoever connects could otherwise test guesses of the key against our proof.
TEST_F(Security, WhoDoesNotKnockGetsNothingThatTheKeyWasUsedFor) {
  uint64_t before = count("auth_failures");
  KeyBytes wrong = target.engine_key;
  wrong[0] ^= 1;
  for (bool known : {true, false}) {
    RawClient client(target);
    client.hello.target_uid = known ? target.uid : wire::Uid{};
    ASSERT_TRUE(client.send_hello(wrong));
    ASSERT_TRUE(client.receive_challenge());
    wire::Challenge refusal;
    refusal.status = TCPX_AUTH_FAILED;
    EXPECT_EQ(client.challenge, refusal) << "no uid, no nonce, no proof";
    EXPECT_TRUE(client.closes());
  }
  EXPECT_TRUE(reaches("auth_failures", before + 2)) << counters(engine).dump();
}

// A knock belongs to its hello: none of another one, of another lane or of another session.
TEST_F(Security, AKnockIsGoodForItsHelloAlone) {
  RawClient first(target);
  ASSERT_TRUE(first.handshake());
  RawClient second(target);
  second.hello.knock = first.hello.knock;
  ASSERT_TRUE(second.send_hello(KeyBytes{}));
  ASSERT_TRUE(second.receive_challenge());
  EXPECT_EQ(second.challenge.status, TCPX_AUTH_FAILED);
}

TEST_F(Security, OversizeClaimsInAHelloAllocateNothing) {
  uint64_t rss = rss_bytes();
  for (int i = 0; i < 3; ++i) {
    RawClient client(target);
    if (i == 0) client.hello.lanes = UINT32_MAX;
    if (i == 1) client.hello.chunk_bytes = UINT64_MAX;
    if (i == 2) client.hello.window = UINT32_MAX;
    client.send_hello();
    EXPECT_TRUE(client.closes());
  }
  if (!kSanitized) {
    EXPECT_LT(rss_bytes(), rss + (8 << 20));
  }
}

TEST_F(Security, AClientWithAuthOffIsRefusedByAnEngineWithAuthOn) {
  uint64_t before = count("auth_failures");
  RawClient client(target);
  client.hello.authenticated = false;
  ASSERT_TRUE(client.send_hello());
  if (client.receive_challenge() && client.challenge.status == TCPX_OK) {
    client.send_proof_bytes({});
    EXPECT_FALSE(client.receive_welcome());
  }
  EXPECT_TRUE(client.closes());
  EXPECT_TRUE(reaches("auth_failures", before + 1)) << counters(engine).dump();

  Engine open = make_engine(fault_options({{"auth", "off"}}));
  tcpx_peer peer = 0;
  Result result = open.connect(engine.connection_info(), &peer);
  if (result) result = open.peer_wait(peer, kLong);
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED);
}

TEST_F(Security, ASlowLorisIsCutByTheHandshakeTimeout) {
  uint64_t before = count("handshake_timeouts");
  RawClient client(target);
  std::array<uint8_t, wire::kHelloBytes> hello{};
  wire::encode(client.hello, hello);
  Stopwatch watch;
  bool closed = false;
  for (size_t i = 0; i < hello.size() && !closed; ++i) {
    client.socket().send(std::span(hello).subspan(i, 1));
    closed = client.socket().closes(Ms{100});
  }
  EXPECT_TRUE(closed);
  EXPECT_LT(watch.elapsed(), kHandshakeTimeout + patience(1'500));
  EXPECT_GE(watch.elapsed(), kHandshakeTimeout / 2);
  EXPECT_TRUE(reaches("handshake_timeouts", before + 1)) << counters(engine).dump();
}

TEST_F(Security, SilenceInAnyStepOfTheHandshakeIsCutByItsTimeout) {
  uint64_t before = count("handshake_timeouts");
  RawClient silent(target), half(target), no_proof(target);
  std::array<uint8_t, wire::kHelloBytes> hello{};
  wire::encode(half.hello, hello);
  half.socket().send(std::span(hello).first(100));
  ASSERT_TRUE(no_proof.send_hello() && no_proof.receive_challenge());
  for (RawClient* client : {&silent, &half, &no_proof}) EXPECT_TRUE(client->closes());
  EXPECT_TRUE(reaches("handshake_timeouts", before + 3)) << counters(engine).dump();
}

TEST_F(Security, AHelloInSmallPartsIsFine) {
  RawClient client(target);
  std::array<uint8_t, wire::kHelloBytes> hello{};
  wire::encode(client.hello, hello);
  RawClient twin(target);
  twin.hello = client.hello;
  for (size_t i = 0; i < hello.size(); i += 16) {
    client.socket().send(std::span(hello).subspan(i, 16));
    std::this_thread::sleep_for(Ms{2});
  }
  EXPECT_TRUE(client.receive_challenge());
  EXPECT_TRUE(twin.handshake());
}

TEST_F(Security, HalfOpenConnectionsAreBoundedAndThenItRecovers) {
  Holdings before;
  std::vector<RawSocket> strangers;
  for (int i = 0; i < 40; ++i) strangers.emplace_back(target.port);
  // Our own ends are 40 fds; the engine may hold at most 8 of the others.
  EXPECT_TRUE(eventually([&] { return open_fds() <= before.fds + 40 + 8; }, kHandshakeTimeout / 2))
      << before.now();
  EXPECT_LE(count("half_open"), 8u);
  expect_good_peer_works();
  EXPECT_TRUE(eventually([&] { return count("half_open") == 0; }, kNoticed));
  strangers.clear();
  EXPECT_TRUE(before.restored()) << before.now();
}

// ---- the engine as the one who connects --------------------------------------------------------
class RogueServer : public Fault {
 protected:
  void SetUp() override {
    start(fault_options({{"auth_key", "a shared key, long enough 0123456789"}}));
  }
  void start(const Options& options) {
    engine = make_engine(options);
    good = make_engine(options);
    good_memory = make_local(good, kSmall, kReadWrite, 1);
    good_remote = describe(good, good_memory.region);
    own = make_local(engine, kSmall, kReadWrite, 3);
    good_id = connect(good.connection_info());
  }
  // How connecting to `listener` ends when the server does `act` on the socket.
  Result meet(const std::function<void(RawSocket&)>& act) {
    RawListener listener;
    tcpx_peer peer = 0;
    EXPECT_TRUE(succeeded(engine.connect_address(listener.address(), &peer)));
    RawSocket socket = listener.accept();
    act(socket);
    Result result = engine.peer_wait(peer, kLong);
    (void)engine.disconnect(peer);
    return result;
  }
};

TEST_F(RogueServer, WithoutTheKeyGetsNoProofOutOfTheClient) {
  size_t leaked = 1;
  Result result = meet([&](RawSocket& socket) {
    std::array<uint8_t, wire::kHelloBytes> hello{};
    ASSERT_TRUE(socket.receive(hello));
    wire::Challenge challenge;
    std::array<uint8_t, wire::kChallengeBytes> bytes{};
    wire::encode(challenge, bytes);
    socket.send(bytes);
    leaked = socket.drain(Ms{200});
  });
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED) << result.text();
  EXPECT_EQ(leaked, 0u) << "a client proves itself only to a server that has";
}

TEST_F(RogueServer, CannotTalkTheClientIntoAuthOff) {
  Result result = meet([&](RawSocket& socket) {
    std::array<uint8_t, wire::kHelloBytes> hello{};
    ASSERT_TRUE(socket.receive(hello));
    wire::Challenge challenge;
    challenge.authenticated = false;
    std::array<uint8_t, wire::kChallengeBytes> bytes{};
    wire::encode(challenge, bytes);
    socket.send(bytes);
    wire::Welcome welcome;
    welcome.session = 1;
    welcome.chunk_bytes = 512 << 10;
    welcome.window = 4;
    std::array<uint8_t, wire::kWelcomeBytes> more{};
    wire::encode(welcome, more);
    socket.send(more);
    socket.drain(Ms{200});
  });
  EXPECT_EQ(result.code(), TCPX_AUTH_FAILED) << result.text();
}

TEST_F(RogueServer, OfAnotherVersionIsNamedInTheError) {
  for (uint16_t version : {uint16_t{3}, uint16_t(wire::kWireVersion + 1)}) {
    for (uint16_t code : {uint16_t{TCPX_VERSION_MISMATCH}, uint16_t{TCPX_OK}}) {
      SCOPED_TRACE(strf("version {}, status {}", version, code));
      Result result = meet([&](RawSocket& socket) {
        std::array<uint8_t, wire::kHelloBytes> hello{};
        ASSERT_TRUE(socket.receive(hello));
        wire::Challenge challenge;
        challenge.status = code;
        challenge.version = version;
        std::array<uint8_t, wire::kChallengeBytes> bytes{};
        wire::encode(challenge, bytes);
        socket.send(bytes);
        EXPECT_EQ(socket.drain(Ms{200}), 0u);
      });
      EXPECT_EQ(result.code(), TCPX_VERSION_MISMATCH) << result.text();
      EXPECT_NE(result.text().find(
                    strf("wire version {}, this engine {}", version, wire::kOldestWireVersion)),
                std::string::npos)
          << result.text();
    }
  }
}

// A server with the key, of a later version that has more paths.
TEST_F(RogueServer, WithPathsThatWeDoNotKnowIsAPeerByThoseWeDo) {
  constexpr std::string_view kSecret = "a shared key, long enough 0123456789";
  const KeyBytes key =
      engine_key_from({reinterpret_cast<const uint8_t*>(kSecret.data()), kSecret.size()});
  std::vector<uint8_t> transcript;  // hello and challenge, as they are signed
  auto sign = [&](const KeyBytes& with, std::string_view label, std::span<const uint8_t> more) {
    std::vector<uint8_t> message(label.begin(), label.end());
    message.insert(message.end(), transcript.begin(), transcript.end());
    message.insert(message.end(), more.begin(), more.end());
    wire::Digest digest{};
    EXPECT_TRUE(wire::hmac_sha256(with, message, &digest));
    return digest;
  };
  for (auto [paths, expected] :
       {std::pair<wire::PathMask, tcpx_code>{0xfff1, TCPX_OK}, {0xfff8, TCPX_PATH_UNAVAILABLE}}) {
    SCOPED_TRACE(paths);
    Result result = meet([&](RawSocket& socket) {
      std::array<uint8_t, wire::kHelloBytes> hello{};
      ASSERT_TRUE(socket.receive(hello));
      std::array<uint8_t, wire::kChallengeBytes> said{};
      wire::Challenge challenge;
      wire::encode(challenge, said);
      transcript.assign(hello.begin(), hello.end());
      transcript.insert(transcript.end(), said.begin(), said.begin() + wire::kChallengeSignedBytes);
      challenge.proof = sign(key, "tcpx-p2p server proof v1", {});
      wire::encode(challenge, said);
      ASSERT_TRUE(socket.send(said));
      std::array<uint8_t, wire::kProofMessageBytes> proof{};
      ASSERT_TRUE(socket.receive(proof));
      wire::Welcome welcome;
      welcome.session = 77;
      welcome.chunk_bytes = 512 << 10;
      welcome.window = 16;
      welcome.paths = paths;
      std::array<uint8_t, wire::kWelcomeBytes> bytes{};
      wire::encode(welcome, bytes);
      const wire::Digest session = sign(key, "tcpx-p2p session key  v1", {});
      welcome.mac = sign({session.begin(), session.end()}, "tcpx-p2p welcome mac  v1",
                         std::span(bytes).first(wire::kWelcomeSignedBytes));
      wire::encode(welcome, bytes);
      ASSERT_TRUE(socket.send(bytes));
    });
    EXPECT_EQ(result.code(), expected) << result.text();
  }
}

TEST_F(RogueServer, ThatSpeaksAnotherProtocolIsAnErrorInTime) {
  Result result = meet([&](RawSocket& socket) {
    socket.send(std::string("SSH-2.0-OpenSSH_9.2p1 ") + std::string(400, 'x') + "\r\n");
    socket.drain(Ms{100});
  });
  EXPECT_TRUE(result.code() == TCPX_PROTOCOL_ERROR || result.code() == TCPX_CONNECT_FAILED)
      << result.name() << ": " << result.text();
}

}  // namespace
}  // namespace tcpx::test
