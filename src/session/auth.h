// Keys and proofs: how one engine knows another. docs/wire-protocol.md has the formulas.
//
// secret   random per engine and carried by its connection info, or the operator's key
//   -> engine key    proves the first socket of a session
//       -> session key   proves every lane that joins it; fresh with both nonces of the first
//       socket
//
// An engine with auth=off makes no proofs (all bytes zero) and checks none; both sides have to run
// that way, or neither: nobody is talked down to it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "config/key_material.h"
#include "wire/blobs.h"
#include "wire/handshake.h"

namespace tcpx::auth {

inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kMinSecretBytes = config::kMinKeyBytes;
inline constexpr size_t kMaxSecretBytes = config::kMaxKeyBytes;

void wipe(std::span<uint8_t> bytes);  // not optimised away

// 32 secret bytes that do not outlive the object.
class Key {
 public:
  Key() = default;
  Key(const Key&) = default;
  Key& operator=(const Key&) = default;
  ~Key() { wipe(bytes_); }

  std::span<const uint8_t, kKeyBytes> bytes() const { return bytes_; }
  std::span<uint8_t, kKeyBytes> mutable_bytes() { return bytes_; }

 private:
  std::array<uint8_t, kKeyBytes> bytes_{};
};

// Secret bytes of any length that do not outlive the object.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::span<const uint8_t> bytes) : bytes_(bytes.begin(), bytes.end()) {}
  Secret(Secret&&) noexcept = default;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  Secret& operator=(Secret&& other) noexcept {
    wipe(bytes_);
    bytes_ = std::move(other.bytes_);
    return *this;
  }
  ~Secret() { wipe(bytes_); }

  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

using HelloBytes = std::span<const uint8_t, wire::kHelloBytes>;
// A Hello as it is on the wire, without its knock.
using KnockedBytes = std::span<const uint8_t, wire::kKnockedBytes>;
// A Challenge as it is on the wire, without its proof.
using ChallengeBytes = std::span<const uint8_t, wire::kChallengeSignedBytes>;

// A Welcome as it is on the wire, without its MAC.
using WelcomeBytes = std::span<const uint8_t, wire::kWelcomeSignedBytes>;

// Who makes a proof: one side's proof is never a valid answer of the other.
enum class Role : uint8_t { kClient = 1, kServer = 2 };

// A new secret for connection info, from the kernel's random source.
Status new_secret(std::span<uint8_t, wire::kSecretBytes> out);

// `secret` has kMinSecretBytes..kMaxSecretBytes, else TCPX_BAD_CONFIG. All functions below write
// their output only on success and fail otherwise only if OpenSSL does (TCPX_INTERNAL).
Status derive_engine_key(std::span<const uint8_t> secret, Key* out);
// What a client calls its key in a hello, never 0: for servers that hold several.
Status make_key_id(const Key& engine_key, uint64_t* out);
Status derive_session_key(const Key& engine_key, HelloBytes hello, ChallengeBytes challenge,
                          Key* out);
// The client's sign that it holds `key`, which it will have to prove: not worth a proof, since a
// hello can be said again by whoever saw it.
Status make_knock(const Key& key, KnockedBytes hello, wire::Knock* out);
Status check_knock(const Key& key, HelloBytes hello);
Status make_proof(const Key& key, Role role, HelloBytes hello, ChallengeBytes challenge,
                  wire::ProofBytes* out);
// Checks what a peer in `role` sent. TCPX_AUTH_FAILED says what is likely wrong and how to mend it.
Status check_proof(const Key& key, Role role, HelloBytes hello, ChallengeBytes challenge,
                   const wire::ProofBytes& proof);

// The server's signature under what it agreed to, with the session's key.
Status make_welcome_mac(const Key& session_key, HelloBytes hello, ChallengeBytes challenge,
                        WelcomeBytes welcome, wire::ProofBytes* out);
Status check_welcome_mac(const Key& session_key, HelloBytes hello, ChallengeBytes challenge,
                         WelcomeBytes welcome, std::span<const uint8_t, wire::kProofBytes> mac);

// Both sides of a handshake run authenticated, or both open; else TCPX_AUTH_FAILED. `peer` is
// what the other side says of itself (Hello, Challenge): a lie only makes its proof fail.
Status check_mode(bool this_engine_authenticated, bool peer_authenticated);
// The same before connecting, from the peer's connection info. An info that anyone can make (kOpen,
// kSecretInside) must not lead an engine with an operator's key to a stranger.
Status check_info_mode(wire::AuthMode this_engine, wire::AuthMode info);

struct KeyFile {
  Secret secret;
  bool readable_by_others = false;  // by group or world: worth a warning
};
// The bytes of a regular file without one trailing newline, if they make a key
// (config/key_material). TCPX_BAD_CONFIG names the path and what to do.
Status load_key_file(const std::string& path, KeyFile* out);

}  // namespace tcpx::auth
