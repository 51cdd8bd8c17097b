// The engine: what the C API, the NIXL backend and the tools stand on. It starts and ends what the
// parts work with (threads, listening sockets, keys, paths) and ties them together: Reception for
// peers that come, Dialler for those that we go to, PeerBook for who they are, EngineRegions for
// memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/options.h"
#include "engine/addresses.h"
#include "engine/dialler.h"
#include "engine/doorkeeper.h"
#include "engine/engine_regions.h"
#include "engine/path_choice.h"
#include "engine/peer_book.h"
#include "engine/reception.h"
#include "engine/shared.h"
#include "session/keyring.h"
#include "session/service.h"

namespace tcpx {

class EngineCore final : private ServiceOwner {
 public:
  // `movers` is null where host memory is all there is (see memory/mover.h), and outlives the
  // engine.
  static Status create(Config config, Log log, Movers* movers, std::unique_ptr<EngineCore>* out);
  ~EngineCore() override;

  const std::vector<uint8_t>& connection_info() const { return connection_info_; }
  const Config& config() const { return config_; }
  EngineShared& shared() { return shared_; }
  std::string counters_json();

  // ---- parts ----
  EngineRegions& regions() { return regions_; }
  PeerBook& peers() { return peers_; }
  Dialler& dialler() { return dialler_; }

  // ---- any thread but a loop's ----
  // With a goodbye; the peer's number names nobody afterwards.
  Status disconnect(uint64_t peer);
  Status prepare(uint64_t peer, tcpx_op op, std::span<const tcpx_local_piece> local,
                 std::span<const tcpx_remote_piece> remote, std::shared_ptr<TransferState>* out);
  void poll();  // some progress, if that helps

 private:
  static constexpr Nanos kGoodbyePatience = 500 * kMilli;

  EngineCore(Config config, Log log, Movers* movers);
  Status start();
  Status make_loops();
  uint32_t lanes_per_peer() const;
  void make_connection_info();
  void say_hello(size_t listeners) const;
  Status start_threads(std::vector<Fd> listeners);
  size_t end_all() noexcept;

  // ServiceOwner: service thread.
  void accepted(Handshake& handshake) override { reception_.accepted(handshake); }
  void refused(const Handshake& handshake, bool timed_out) override {
    doorkeeper_.refused(handshake, timed_out);
  }
  void crowded(size_t evicted) override { doorkeeper_.crowded(evicted); }
  Nanos tick(Nanos now) override;
  void failed(const char* what, const Status& status) noexcept override {
    doorkeeper_.failed(what, status);
  }

  Config config_;
  std::unique_ptr<Movers> own_movers_;          // outlives the loops
  std::unique_ptr<EngineShared> shared_owner_;  // left behind if a thread hangs in a plugin
  EngineShared& shared_;
  Keyring keys_;
  Addresses addresses_;
  std::vector<uint8_t> connection_info_;
  Service service_;
  Doorkeeper doorkeeper_;
  std::unique_ptr<Door> door_;
  PathChoice paths_;
  PeerBook peers_;
  EngineRegions regions_;
  Reception reception_;
  Dialler dialler_;
  std::vector<std::shared_ptr<Peer>> tick_scratch_;  // service thread
};

}  // namespace tcpx
