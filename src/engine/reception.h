// Clients that come to an engine: with which keys they are let in, what they are told, and what
// becomes of them when they have shaken hands: new peers, or further lanes of one.
#pragma once

#include "engine/addresses.h"
#include "engine/path_choice.h"
#include "engine/peer_book.h"
#include "session/handshake.h"
#include "session/keyring.h"

namespace tcpx {

class Reception final : public HandshakeHost {
 public:
  Reception(EngineShared& shared, const Keyring& keys, const Addresses& addresses,
            const PathChoice& paths, PeerBook& peers)
      : shared_(shared), keys_(keys), addresses_(addresses), paths_(paths), peers_(peers) {}

  // ---- GreetingHost: any thread ----
  bool requires_auth() const override { return shared_.options.auth; }
  wire::Uid uid() const override { return shared_.uid; }
  Status key_for(const wire::Hello& hello, auth::Key* key) override;

  // ---- service thread ----
  Status welcome_for(const wire::Hello& hello, const wire::Address& remote,
                     const auth::Key& session_key, wire::Welcome* welcome) override;
  void welcome_over(uint64_t session) noexcept override { peers_.welcome_over(session); }
  void accepted(Handshake& handshake);

 private:
  void lane_joins(Handshake& handshake);
  void peer_arrives(Handshake& handshake);

  EngineShared& shared_;
  const Keyring& keys_;
  const Addresses& addresses_;
  const PathChoice& paths_;
  PeerBook& peers_;
};

}  // namespace tcpx
