#include "raw_client.h"

#include <algorithm>
#include <atomic>
#include <fstream>

namespace tcpx::test {
namespace {

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

KeyBytes engine_key_from(std::span<const uint8_t> secret) {
  wire::Digest digest{};
  if (!wire::hmac_sha256(as_bytes("tcpx-p2p engine key   v1"), secret, &digest))
    throw std::runtime_error("hmac");
  return {digest.begin(), digest.end()};
}

wire::Knock knock_of(const KeyBytes& key, std::span<const uint8_t, wire::kHelloBytes> hello) {
  constexpr std::string_view kLabel = "tcpx-p2p knock        v1";
  std::vector<uint8_t> message(kLabel.begin(), kLabel.end());
  message.insert(message.end(), hello.begin(), hello.begin() + wire::kKnockedBytes);
  wire::Digest digest{};
  if (!wire::hmac_sha256(key, message, &digest)) throw std::runtime_error("hmac");
  wire::Knock knock;
  std::copy_n(digest.begin(), knock.size(), knock.begin());
  return knock;
}

Target Target::from_info(const std::vector<uint8_t>& info) {
  wire::ConnectionInfo decoded;
  Status status = wire::decode_connection_info(info, {}, &decoded);
  if (!status) throw std::runtime_error(status.to_string());
  Target target;
  target.port = decoded.addresses.at(0).port;
  target.uid = decoded.uid;
  target.engine_key = engine_key_from(decoded.secret);
  return target;
}

void RawClient::fresh_nonce(wire::Nonce& nonce) {
  std::ifstream("/dev/urandom", std::ios::binary)
      .read(reinterpret_cast<char*>(nonce.data()), static_cast<std::streamsize>(nonce.size()));
}

bool RawClient::send_hello(const KeyBytes& key) {
  wire::encode(hello, hello_bytes_);
  if (!key.empty()) {
    hello.knock = knock_of(key, hello_bytes_);
    wire::encode(hello, hello_bytes_);
  }
  return socket_.send(hello_bytes_);
}

bool RawClient::receive_challenge() {
  return socket_.receive(challenge_bytes_) && wire::decode(challenge_bytes_, &challenge).ok();
}

wire::Digest RawClient::sign(const KeyBytes& key, std::string_view label,
                             std::span<const uint8_t> more) const {
  std::vector<uint8_t> message(label.begin(), label.end());
  message.insert(message.end(), hello_bytes_.begin(), hello_bytes_.end());
  message.insert(message.end(), challenge_bytes_.begin(),
                 challenge_bytes_.begin() + wire::kChallengeSignedBytes);
  message.insert(message.end(), more.begin(), more.end());
  wire::Digest digest{};
  if (!wire::hmac_sha256(key, message, &digest)) throw std::runtime_error("hmac");
  return digest;
}

bool RawClient::server_proof_holds(const KeyBytes& key) const {
  return sign(key, "tcpx-p2p server proof v1") == challenge.proof;
}
bool RawClient::welcome_mac_holds(const KeyBytes& session_key) const {
  return sign(session_key, "tcpx-p2p welcome mac  v1",
              std::span(welcome_bytes_).first(wire::kWelcomeSignedBytes)) == welcome.mac;
}
bool RawClient::send_proof(const KeyBytes& key) {
  return send_proof_bytes(sign(key, "tcpx-p2p client proof v1"));
}
bool RawClient::send_proof_bytes(const wire::ProofBytes& proof) {
  std::array<uint8_t, wire::kProofMessageBytes> bytes{};
  wire::encode(wire::Proof{proof}, bytes);
  return socket_.send(bytes);
}
KeyBytes RawClient::session_key() const {
  wire::Digest digest = sign(target_.engine_key, "tcpx-p2p session key  v1");
  return {digest.begin(), digest.end()};
}

bool RawClient::receive_welcome() {
  return socket_.receive(welcome_bytes_) && wire::decode(welcome_bytes_, &welcome).ok() &&
         welcome.status == TCPX_OK;
}

bool RawClient::handshake(const KeyBytes& key) {
  bool welcomed = send_hello(key) && receive_challenge() && challenge.status == TCPX_OK &&
                  send_proof(key) && receive_welcome();
  epoch = std::max(epoch, welcome.epoch);
  return welcomed;
}

bool RawClient::send_header(wire::Header header) {
  header.sequence = last_sent_ = sequence_++;
  std::array<uint8_t, wire::kHeaderBytes> bytes{};
  wire::encode_header(header, bytes);
  return socket_.send(bytes);
}

bool RawClient::send_trailer(tcpx_code status) {
  std::array<uint8_t, wire::kTrailerBytes> bytes{};
  wire::encode_trailer({static_cast<uint16_t>(status), last_sent_}, bytes);
  return socket_.send(bytes);
}

std::vector<uint8_t> RawClient::burst(wire::Header header, size_t count) {
  size_t each = wire::kHeaderBytes + (header.has_payload() ? wire::kTrailerBytes : 0);
  std::vector<uint8_t> bytes(each * count);
  for (size_t i = 0; i < count; ++i) {
    uint8_t* at = bytes.data() + i * each;
    header.sequence = last_sent_ = sequence_++;
    wire::encode_header(header, std::span<uint8_t, wire::kHeaderBytes>(at, wire::kHeaderBytes));
    if (header.has_payload())
      wire::encode_trailer(
          {TCPX_OK, last_sent_},
          std::span<uint8_t, wire::kTrailerBytes>(at + wire::kHeaderBytes, wire::kTrailerBytes));
    if (header.type == wire::FrameType::kNotify) ++header.transfer;
  }
  return bytes;
}

bool RawClient::send(wire::Header header, std::span<const wire::Piece> pieces,
                     std::span<const uint8_t> payload) {
  if (pieces.size() == 1) header.piece = pieces[0];
  if (!pieces.empty()) header.piece_count = static_cast<uint32_t>(pieces.size());
  if (!send_header(header)) return false;
  if (pieces.size() > 1) {
    std::vector<uint8_t> table(pieces.size() * wire::kPieceBytes);
    wire::encode_pieces(pieces, table.data());
    if (!socket_.send(table)) return false;
  }
  if (!header.has_payload()) return true;
  return socket_.send(payload) && send_trailer();
}

std::optional<Frame> RawClient::receive(Ms limit) {
  for (auto end = Clock::now() + limit; Clock::now() < end;) {
    std::array<uint8_t, wire::kHeaderBytes> bytes{};
    Frame frame;
    if (!socket_.receive(bytes, std::chrono::duration_cast<Ms>(end - Clock::now()))) return {};
    if (Status s = wire::decode_header(bytes, {}, &frame.header); !s)
      throw std::runtime_error("the engine sent a bad frame: " + s.to_string());
    if (frame.header.has_payload()) {
      frame.payload.resize(frame.header.payload_bytes);
      std::array<uint8_t, wire::kTrailerBytes> trailer{};
      if (!socket_.receive(frame.payload) || !socket_.receive(trailer)) return {};
      if (!wire::decode_trailer(trailer, &frame.trailer)) throw std::runtime_error("bad trailer");
    }
    if (frame.header.type != wire::FrameType::kPing) return frame;
    epoch = std::max(epoch, frame.header.transfer);
    send(frame_of(wire::FrameType::kPong, 0, frame.header.aux));
  }
  return {};
}

std::optional<Frame> RawClient::receive_type(wire::FrameType type, Ms limit) {
  for (auto end = Clock::now() + limit; Clock::now() < end;) {
    auto frame = receive(std::chrono::duration_cast<Ms>(end - Clock::now()));
    if (!frame || frame->header.type == type) return frame;
  }
  return {};
}

bool RawClient::ping(Ms limit) {
  static std::atomic<uint64_t> clock{0x5eed};
  uint64_t mark = ++clock;
  if (!send(frame_of(wire::FrameType::kPing, 0, mark))) return false;
  for (auto end = Clock::now() + limit; Clock::now() < end;) {
    auto frame = receive_type(wire::FrameType::kPong, limit);
    if (!frame) return false;
    if (frame->header.aux == mark) return true;
  }
  return false;
}

}  // namespace tcpx::test
