// Peers that an engine goes to: each has a Connector until it has its lanes or is given up.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/connector.h"
#include "engine/peer_book.h"
#include "session/keyring.h"

namespace tcpx {

class Dialler {
 public:
  Dialler(const ConnectorHost& host, const Keyring& keys, PeerBook& peers)
      : host_(host), keys_(keys), peers_(peers) {}

  // ---- any thread; return at once ----
  // By what the other engine tells of itself, or by "host:port" alone.
  Status connect(std::span<const uint8_t> info, uint64_t* peer);
  Status connect_address(const std::string& address, uint64_t* peer);

  // ---- service thread ----
  void tick(Nanos now) noexcept;
  bool dials() const { return !connectors_.empty(); }
  Nanos wants_tick() const;  // by when; kNever: nothing is waited for

 private:
  Status start(ConnectTarget target, uint64_t* peer);

  const ConnectorHost host_;
  const Keyring& keys_;
  PeerBook& peers_;
  std::vector<std::shared_ptr<Connector>> connectors_;  // service thread only
};

}  // namespace tcpx
