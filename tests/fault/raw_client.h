// A client written from docs/wire-protocol.md and src/wire alone, without the engine's session
// code: it can be correct, and wrong in exactly one place.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "raw_socket.h"
#include "wire/blobs.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/mac.h"

namespace tcpx::test {

using KeyBytes = std::vector<uint8_t>;

struct Frame {
  wire::Header header;
  std::vector<uint8_t> payload;
  wire::Trailer trailer;
};

inline wire::Header frame_of(wire::FrameType type, uint64_t transfer = 0, uint64_t aux = 0) {
  wire::Header header;
  header.type = type;
  header.transfer = transfer;
  header.aux = aux;
  return header;
}

// Where an engine listens and the key its secret gives, from its connection info.
struct Target {
  uint16_t port = 0;
  wire::Uid uid{};
  KeyBytes engine_key;

  static Target from_info(const std::vector<uint8_t>& info);
};
KeyBytes engine_key_from(std::span<const uint8_t> secret);
wire::Knock knock_of(const KeyBytes& key, std::span<const uint8_t, wire::kHelloBytes> hello);

class RawClient {
 public:
  explicit RawClient(const Target& target) : target_(target), socket_(target.port) {
    hello.chunk_bytes = 512 << 10;
    hello.window = 16;
    hello.name = "raw";
    for (uint8_t& b : hello.uid) b = 0x77;
    fresh_nonce(hello.nonce);
  }

  // ---- handshake, step by step; each returns false if the server closed ----
  // With a knock made with `key`, for what it will have to prove; with what `hello` has for none.
  bool send_hello(const KeyBytes& key);
  bool send_hello() { return send_hello(target_.engine_key); }
  bool receive_challenge();
  bool server_proof_holds(const KeyBytes& key) const;
  bool welcome_mac_holds(const KeyBytes& session_key) const;
  bool send_proof(const KeyBytes& key);
  bool send_proof_bytes(const wire::ProofBytes& proof);
  bool receive_welcome();
  // All of it with `key`. True: welcomed.
  bool handshake(const KeyBytes& key);
  bool handshake() { return handshake(target_.engine_key); }
  KeyBytes session_key() const;

  wire::Hello hello;
  wire::Challenge challenge;
  wire::Welcome welcome;
  uint64_t epoch = 0;  // of the engine: the latest it has told

  // ---- frames ----
  // Sets the sequence, unless told otherwise, and sends header, table, payload and trailer.
  bool send(wire::Header header, std::span<const wire::Piece> pieces = {},
            std::span<const uint8_t> payload = {});
  bool send_header(wire::Header header);
  bool send_trailer(tcpx_code status = TCPX_OK);
  // `count` such frames, without payload, as bytes. They are the next ones to be sent.
  std::vector<uint8_t> burst(wire::Header header, size_t count);
  // The next frame that is not a ping (those are answered); empty: closed or silent.
  std::optional<Frame> receive(Ms limit = patience(3'000));
  std::optional<Frame> receive_type(wire::FrameType type, Ms limit = patience(3'000));
  // The lane lives: a ping comes back.
  bool ping(Ms limit = patience(3'000));
  bool closes(Ms limit = patience(5'000)) { return socket_.closes(limit); }

  RawSocket& socket() { return socket_; }
  void skip_sequence(uint32_t by) { sequence_ += by; }
  std::vector<uint8_t> hello_bytes() const { return {hello_bytes_.begin(), hello_bytes_.end()}; }

 private:
  static void fresh_nonce(wire::Nonce& nonce);
  wire::Digest sign(const KeyBytes& key, std::string_view label,
                    std::span<const uint8_t> more = {}) const;

  Target target_;
  RawSocket socket_;
  std::array<uint8_t, wire::kHelloBytes> hello_bytes_{};
  std::array<uint8_t, wire::kChallengeBytes> challenge_bytes_{};
  std::array<uint8_t, wire::kWelcomeBytes> welcome_bytes_{};
  uint32_t sequence_ = 0;
  uint32_t last_sent_ = 0;
};

}  // namespace tcpx::test
