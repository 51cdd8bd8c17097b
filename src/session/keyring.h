// The keys of one engine: what it proves itself with, which connection infos it believes and which
// clients it lets in. How it authenticates is this engine's own setting; what the other side says
// of itself can only make a connection fail.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "config/options.h"
#include "session/auth.h"
#include "wire/blobs.h"
#include "wire/handshake.h"

namespace tcpx {

// What a client proves itself with, and what it calls that in its hello (0: nothing).
struct ClientKey {
  auth::Key key;
  uint64_t id = 0;
};

class Keyring {
 public:
  // From auth, auth_key and auth_key_file; without a key the engine makes a secret of its own.
  Status load(const EngineOptions& options, const Log& log);

  wire::AuthMode mode() const { return mode_; }
  std::string describe() const;  // "by shared key", for the log

  // This engine's own info: adds mode and secret, signs it with the first key.
  std::vector<uint8_t> make_info(wire::ConnectionInfo info) const;
  // Another engine's: opened with the key it was signed with, refused if it is of another mode than
  // this engine. *key is what to connect with.
  Status open_info(std::span<const uint8_t> bytes, wire::ConnectionInfo* info,
                   ClientKey* key) const;
  // For connecting by address alone: the operator's keys, the one to try first in front; one that
  // proves nothing with auth=off. TCPX_AUTH_FAILED if there is none.
  Status address_keys(std::vector<ClientKey>* out) const;
  // The key that a client of a new session says it holds.
  Status key_of_client(uint64_t key_id, auth::Key* out) const;

 private:
  struct OperatorKey {
    auth::Secret secret;
    ClientKey client;
  };
  Status add(auth::Secret secret);

  wire::AuthMode mode_ = wire::AuthMode::kOpen;
  std::vector<OperatorKey> operator_keys_;                // kSharedKey: at least one
  std::array<uint8_t, wire::kSecretBytes> own_secret_{};  // kSecretInside
  auth::Key own_key_;                                     // of it
};

}  // namespace tcpx
