#include "session/auth.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/fd.h"
#include "base/ids.h"
#include "base/text.h"
#include "wire/bytes.h"
#include "wire/mac.h"

namespace tcpx::auth {
namespace {

// One label per use: no output of one is ever valid as another. All have the same length, so that
// label | hello | challenge has one reading.
constexpr size_t kLabelBytes = 24;
constexpr std::string_view kEngineKeyLabel = "tcpx-p2p engine key   v1";
constexpr std::string_view kKeyIdLabel = "tcpx-p2p key id       v1";
constexpr std::string_view kSessionKeyLabel = "tcpx-p2p session key  v1";
constexpr std::string_view kKnockLabel = "tcpx-p2p knock        v1";
constexpr std::string_view kClientProofLabel = "tcpx-p2p client proof v1";
constexpr std::string_view kServerProofLabel = "tcpx-p2p server proof v1";
constexpr std::string_view kWelcomeMacLabel = "tcpx-p2p welcome mac  v1";
static_assert(kEngineKeyLabel.size() == kLabelBytes && kKeyIdLabel.size() == kLabelBytes &&
              kKnockLabel.size() == kLabelBytes && kSessionKeyLabel.size() == kLabelBytes &&
              kClientProofLabel.size() == kLabelBytes && kServerProofLabel.size() == kLabelBytes &&
              kWelcomeMacLabel.size() == kLabelBytes);

constexpr const char* kClientHoldsNoSecret =
    "the engine that connected does not hold the secret: its auth_key differs, or it uses "
    "connection info from an earlier run of this engine";

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

Status no_hmac() {
  return wire::no_digest("authentication: HMAC-SHA256");
}

// HMAC(key, label | hello | challenge | welcome); the last is there under its own label only.
bool sign(std::span<const uint8_t> key, std::string_view label, HelloBytes hello,
          ChallengeBytes challenge, std::span<const uint8_t> welcome, wire::Digest* out) {
  std::array<uint8_t, kLabelBytes + wire::kHelloBytes + wire::kChallengeSignedBytes +
                          wire::kWelcomeSignedBytes>
      message;
  auto at = std::copy(label.begin(), label.end(), message.begin());
  at = std::copy(hello.begin(), hello.end(), at);
  at = std::copy(challenge.begin(), challenge.end(), at);
  at = std::copy(welcome.begin(), welcome.end(), at);
  return wire::hmac_sha256(key, std::span(message.begin(), at), out);
}

void take(wire::Digest& digest, Key* out) {
  std::copy(digest.begin(), digest.end(), out->mutable_bytes().begin());
  wipe(digest);
}

Status key_file_error(const std::string& path, std::string_view what) {
  return bad_call(TCPX_BAD_CONFIG,
                  strf("auth_key_file '{0}': {1}; to make a key: (umask 077; head -c 32 "
                       "/dev/urandom | base64 > '{0}'), and give the same file to every peer",
                       path, what));
}

// Reads up to `buffer`'s size; `*length` says how much there was.
Status read_all(int fd, const std::string& path, std::span<uint8_t> buffer, size_t* length) {
  size_t have = 0;
  while (have < buffer.size()) {
    const ssize_t n = ::read(fd, buffer.data() + have, buffer.size() - have);
    if (n == 0) break;
    if (n > 0) {
      have += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      const int err = errno;
      return Status::system(err, TCPX_BLAST_NOTHING, strf("auth_key_file '{}': cannot read", path));
    }
  }
  *length = have;
  return {};
}

}  // namespace

void wipe(std::span<uint8_t> bytes) {
  if (!bytes.empty()) OPENSSL_cleanse(bytes.data(), bytes.size());
}

Status new_secret(std::span<uint8_t, wire::kSecretBytes> out) {
  return random_bytes(out);
}

Status derive_engine_key(std::span<const uint8_t> secret, Key* out) {
  if (secret.size() < kMinSecretBytes || secret.size() > kMaxSecretBytes) {
    return bad_call(TCPX_BAD_CONFIG,
                    strf("the key has {} bytes, it needs {} to {}; to make one: head -c 32 "
                         "/dev/urandom | base64",
                         secret.size(), kMinSecretBytes, kMaxSecretBytes));
  }
  // The label is the HMAC key and the secret the message (as in HKDF-Extract): as a key, a short
  // secret and the same with zero bytes appended would be equal.
  wire::Digest digest;
  if (!wire::hmac_sha256(as_bytes(kEngineKeyLabel), secret, &digest)) return no_hmac();
  take(digest, out);
  return {};
}

Status make_key_id(const Key& engine_key, uint64_t* out) {
  wire::Digest digest;
  if (!wire::hmac_sha256(engine_key.bytes(), as_bytes(kKeyIdLabel), &digest)) return no_hmac();
  const uint64_t id = wire::get<uint64_t, 0>(std::span<const uint8_t, wire::kDigestBytes>(digest));
  *out = id == 0 ? 1 : id;
  return {};
}

Status derive_session_key(const Key& engine_key, HelloBytes hello, ChallengeBytes challenge,
                          Key* out) {
  wire::Digest digest;
  if (!sign(engine_key.bytes(), kSessionKeyLabel, hello, challenge, {}, &digest)) return no_hmac();
  take(digest, out);
  return {};
}

Status make_knock(const Key& key, KnockedBytes hello, wire::Knock* out) {
  std::array<uint8_t, kLabelBytes + wire::kKnockedBytes> message;
  std::copy(hello.begin(), hello.end(),
            std::copy(kKnockLabel.begin(), kKnockLabel.end(), message.begin()));
  wire::Digest digest;
  if (!wire::hmac_sha256(key.bytes(), message, &digest)) return no_hmac();
  std::copy_n(digest.begin(), out->size(), out->begin());
  return {};
}

Status check_knock(const Key& key, HelloBytes hello) {
  wire::Knock expected;
  if (Status s = make_knock(key, hello.first<wire::kKnockedBytes>(), &expected); !s) return s;
  if (wire::equal_constant_time(expected, hello.last<wire::kKnockBytes>())) return {};
  return peer_error(TCPX_AUTH_FAILED, kClientHoldsNoSecret);
}

Status make_proof(const Key& key, Role role, HelloBytes hello, ChallengeBytes challenge,
                  wire::ProofBytes* out) {
  const std::string_view label = role == Role::kServer ? kServerProofLabel : kClientProofLabel;
  return sign(key.bytes(), label, hello, challenge, {}, out) ? Status() : no_hmac();
}

Status check_proof(const Key& key, Role role, HelloBytes hello, ChallengeBytes challenge,
                   const wire::ProofBytes& proof) {
  wire::ProofBytes expected;
  if (Status s = make_proof(key, role, hello, challenge, &expected); !s) return s;
  const bool same = wire::equal_constant_time(expected, proof);
  wipe(expected);
  if (same) return {};
  if (role == Role::kServer) {
    return peer_error(TCPX_AUTH_FAILED,
                      "the engine that answered does not hold the secret: its auth_key differs, "
                      "the connection info is from an earlier run of it, or it is another program");
  }
  return peer_error(TCPX_AUTH_FAILED, kClientHoldsNoSecret);
}

Status make_welcome_mac(const Key& session_key, HelloBytes hello, ChallengeBytes challenge,
                        WelcomeBytes welcome, wire::ProofBytes* out) {
  return sign(session_key.bytes(), kWelcomeMacLabel, hello, challenge, welcome, out) ? Status()
                                                                                     : no_hmac();
}

Status check_welcome_mac(const Key& session_key, HelloBytes hello, ChallengeBytes challenge,
                         WelcomeBytes welcome, std::span<const uint8_t, wire::kProofBytes> mac) {
  wire::ProofBytes expected;
  if (Status s = make_welcome_mac(session_key, hello, challenge, welcome, &expected); !s) return s;
  const bool same = wire::equal_constant_time(expected, mac);
  wipe(expected);
  if (same) return {};
  return peer_error(TCPX_AUTH_FAILED,
                    "the welcome is not signed by the engine that proved itself: something between "
                    "this host and the peer's changed it");
}

Status check_mode(bool this_engine_authenticated, bool peer_authenticated) {
  if (this_engine_authenticated == peer_authenticated) return {};
  if (this_engine_authenticated) {
    return peer_error(TCPX_AUTH_FAILED,
                      "this engine requires authentication; the peer runs with auth=off: set "
                      "auth=on at the peer (auth=off here would let anyone in)");
  }
  return peer_error(TCPX_AUTH_FAILED,
                    "this engine runs with auth=off; the peer requires authentication: set auth=on "
                    "here, and the same auth_key_file or the peer's connection info");
}

Status check_info_mode(wire::AuthMode this_engine, wire::AuthMode info) {
  using wire::AuthMode;
  if (this_engine == info) return {};
  if (this_engine == AuthMode::kSharedKey && info == AuthMode::kSecretInside) {
    return peer_error(TCPX_AUTH_FAILED,
                      "this engine has an auth_key; the connection info was made by an engine "
                      "without a key, so by anyone: set the same auth_key_file at that engine");
  }
  if (this_engine == AuthMode::kSecretInside && info == AuthMode::kSharedKey) {
    return peer_error(TCPX_AUTH_FAILED,
                      "the connection info was made by an engine with a key and this engine has "
                      "none; set the same auth_key_file (TCPX_AUTH_KEY_FILE) here");
  }
  return check_mode(this_engine != AuthMode::kOpen, info != AuthMode::kOpen);
}

Status load_key_file(const std::string& path, KeyFile* out) {
  // O_NONBLOCK: opening a pipe must not wait for its writer before we can refuse it.
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const int err = errno;
    return key_file_error(path, Status::system(err, TCPX_BLAST_NOTHING, "cannot open").text());
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    const int err = errno;
    return key_file_error(path, Status::system(err, TCPX_BLAST_NOTHING, "cannot stat").text());
  }
  if (!S_ISREG(info.st_mode)) return key_file_error(path, "is not a regular file");

  // One byte more than a key and its newline: then it is too long, however long it is.
  std::array<uint8_t, kMaxSecretBytes + 2> buffer;
  size_t length = 0;
  Status status = read_all(fd.get(), path, buffer, &length);
  if (status.ok()) {
    if (length > 0 && buffer[length - 1] == '\n') --length;
    const std::string weakness =
        length > kMaxSecretBytes
            ? strf("has too many bytes, a key has {} to {}", kMinSecretBytes, kMaxSecretBytes)
            : config::key_weakness({reinterpret_cast<const char*>(buffer.data()), length});
    if (!weakness.empty()) {
      status = key_file_error(path, weakness);
    } else {
      out->secret = Secret(std::span(buffer).first(length));
      out->readable_by_others = (info.st_mode & (S_IRGRP | S_IROTH)) != 0;
    }
  }
  wipe(buffer);
  return status;
}

}  // namespace tcpx::auth
