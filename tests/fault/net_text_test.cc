// Words of a peer in the set-up of the net path: shown, never obeyed.
#include "net_fault_fixture.h"
#include "raw_client.h"
#include "wire/net_setup.h"

namespace tcpx::test {
namespace {

constexpr std::string_view kKey = "a key for both ends, long enough: 0123456789";

// The server's side of a handshake from docs/wire-protocol.md, in whose end it takes the net path.
class RawServer {
 public:
  explicit RawServer(RawSocket socket) : socket_(std::move(socket)) {}

  // Of a new session, and of a lane that joins with that session's key; which it gives back.
  KeyBytes shake_hands(uint32_t lanes = 1) {
    const KeyBytes key =
        engine_key_from({reinterpret_cast<const uint8_t*>(kKey.data()), kKey.size()});
    KeyBytes session;
    welcome(key, &session, lanes, wire::kTcpPath | wire::kNetPath);
    return session;
  }
  void let_join(const KeyBytes& session, wire::PathMask paths) {
    KeyBytes same = session;
    welcome(session, &same, 2, paths);
  }
  bool closes(Ms limit) { return socket_.closes(limit); }
  void say(const wire::NetSetup& message) {
    std::array<uint8_t, wire::kNetSetupBytes> payload{};
    wire::encode(message, payload);
    wire::Header header = frame_of(wire::FrameType::kCarrier);
    header.payload_bytes = payload.size();
    std::array<uint8_t, wire::kHeaderBytes> head{};
    wire::encode_header(header, head);
    std::array<uint8_t, wire::kTrailerBytes> trailer{};
    wire::encode_trailer({TCPX_OK, 0}, trailer);
    ASSERT_TRUE(socket_.send(head) && socket_.send(payload) && socket_.send(trailer));
  }
  void drain(Ms limit) { socket_.drain(limit); }

 private:
  // `session`: empty for a new one.
  void welcome(const KeyBytes& key, KeyBytes* session, uint32_t lanes, wire::PathMask paths) {
    wire::Hello hello;
    ASSERT_TRUE(socket_.receive(hello_));
    ASSERT_TRUE(wire::decode(hello_, &hello).ok());
    wire::Challenge challenge;
    challenge.uid.fill(0x55);
    wire::encode(challenge, challenge_);
    challenge.proof = sign(key, "tcpx-p2p server proof v1", {});
    const wire::Digest made = sign(key, "tcpx-p2p session key  v1", {});
    if (session->empty()) session->assign(made.begin(), made.end());
    wire::encode(challenge, challenge_);
    ASSERT_TRUE(socket_.send(challenge_));
    std::array<uint8_t, wire::kProofMessageBytes> proof{};
    ASSERT_TRUE(socket_.receive(proof));
    wire::Welcome welcome;
    welcome.session = 77;
    welcome.lanes = lanes;
    welcome.chunk_bytes = 512 << 10;
    welcome.window = 16;
    welcome.paths = paths;
    std::array<uint8_t, wire::kWelcomeBytes> bytes{};
    wire::encode(welcome, bytes);
    welcome.mac = sign(*session, "tcpx-p2p welcome mac  v1",
                       std::span(bytes).first(wire::kWelcomeSignedBytes));
    wire::encode(welcome, bytes);
    ASSERT_TRUE(socket_.send(bytes));
  }
  wire::Digest sign(const KeyBytes& key, std::string_view label,
                    std::span<const uint8_t> more) const {
    std::vector<uint8_t> message(label.begin(), label.end());
    message.insert(message.end(), hello_.begin(), hello_.end());
    message.insert(message.end(), challenge_.begin(),
                   challenge_.begin() + wire::kChallengeSignedBytes);
    message.insert(message.end(), more.begin(), more.end());
    wire::Digest digest{};
    if (!wire::hmac_sha256(key, message, &digest)) throw std::runtime_error("hmac");
    return digest;
  }

  RawSocket socket_;
  std::array<uint8_t, wire::kHelloBytes> hello_{};
  std::array<uint8_t, wire::kChallengeBytes> challenge_{};
};

TEST_F(NetFault, ThePeersWordsAboutItsFailureAreEscaped) {
  engine = make_engine(required({{"auth_key", std::string(kKey)}}), keep_lines());
  RawListener listener;
  ASSERT_TRUE(succeeded(engine.connect_address(listener.address(), &id)));
  RawServer server(listener.accept());
  server.shake_hands();
  wire::NetSetup failed;
  failed.step = wire::NetStep::kFailed;
  failed.status = TCPX_PATH_UNAVAILABLE;
  failed.text = "no comm\x1b[2J\ntcpx: all is well";
  server.say(failed);
  Result result = engine.peer_wait(id, kLong);
  EXPECT_EQ(result.code(), TCPX_PATH_UNAVAILABLE) << result.text();
  EXPECT_NE(result.text().find("no comm\\x1b[2J"), std::string::npos) << result.text();
  for (const std::string& text : {result.text(), lines()}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos) << text;
    EXPECT_EQ(text.find("\ntcpx: all is well"), std::string::npos) << text;
  }
}

// Its first lane has the path that is required; another one is not taken without.
TEST_F(NetFault, ALaneThatJoinsWithoutTheRequiredPathIsRefused) {
  for (wire::PathMask paths : {wire::kTcpPath, wire::kNetPath}) {
    engine = make_engine(required({{"auth_key", std::string(kKey)}, {"lanes", "2"}}), keep_lines());
    RawListener listener;
    ASSERT_TRUE(succeeded(engine.connect_address(listener.address(), &id)));
    RawServer first(listener.accept());
    const KeyBytes session = first.shake_hands(2);
    RawServer second(listener.accept());
    second.let_join(session, paths);
    EXPECT_EQ(second.closes(kConnectTimeout / 2), paths == wire::kTcpPath);
    engine.destroy();
  }
}

}  // namespace
}  // namespace tcpx::test
