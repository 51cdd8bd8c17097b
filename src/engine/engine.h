// The engine: what the C API, the NIXL backend and the tools stand on. Owns the threads, the
// listening sockets, the registered memory and the peers.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "config/options.h"
#include "engine/connector.h"
#include "engine/doorkeeper.h"
#include "engine/peer.h"
#include "engine/shared.h"
#include "path/paths.h"
#include "session/keyring.h"
#include "session/service.h"
#include "topo/interfaces.h"

namespace tcpx {

class EngineCore final : private ServiceOwner, private ConnectorHost {
 public:
  // `movers` is null where host memory is all there is (see memory/mover.h), and outlives the
  // engine.
  static Status create(Config config, Log log, Movers* movers, std::unique_ptr<EngineCore>* out);
  ~EngineCore() override;

  const std::vector<uint8_t>& connection_info() const { return connection_info_; }
  const Config& config() const { return config_; }
  EngineShared& shared() { return shared_; }
  const wire::Uid& id() const { return uid_; }
  std::string counters_json();

  Status connect(std::span<const uint8_t> info, uint64_t* peer);
  Status connect_address(const std::string& address, uint64_t* peer);
  Status accept(Nanos deadline, uint64_t* peer);
  Status disconnect(uint64_t peer);
  Status find_peer(uint64_t id, std::shared_ptr<Peer>* out);

  Status register_memory(const RegionView& memory, uint64_t* region);
  // For these peers only, and who is granted it later.
  Status register_for(const RegionView& memory, std::span<const uint64_t> peers, uint64_t* region);
  Status grant(uint64_t region, uint64_t peer);
  Status revoke_grant(uint64_t region, uint64_t peer);
  Status deregister(uint64_t region);
  Status suspend(uint64_t region);
  Status resume(uint64_t region);
  void poll();  // some progress, if that helps
  Status describe_region(uint64_t region, wire::RegionDescription* out);
  uint64_t longest_chunk(const Place& place) const;

  Status prepare(uint64_t peer, tcpx_op op, std::span<const tcpx_local_piece> local,
                 std::span<const tcpx_remote_piece> remote, std::shared_ptr<TransferState>* out);

 private:
  static constexpr Nanos kGoodbyePatience = 500 * kMilli;

  EngineCore(Config config, Log log, Movers* movers);
  Status init();
  Status init_paths();
  Status init_listeners(std::vector<Fd>* listeners);
  Status init_loops();
  void make_connection_info();
  void say_hello(size_t listeners);
  uint32_t resolved_lanes() const;
  std::shared_ptr<Peer> new_peer(bool inbound);
  void remember_if_held_locked(const std::shared_ptr<Peer>& peer) TCPX_REQUIRES(mu_);
  std::shared_ptr<Peer> find_session(const wire::Hello& hello);
  Status start_connecting(ConnectTarget target, uint64_t* peer);
  LaneFactory lane_factory(const Path& path, Peer& peer, uint32_t index, Handshake& handshake);
  std::string interface_of(int fd) const;
  bool on_this_host(const wire::Address& address) const;
  void forget_ended_inbound_locked() TCPX_REQUIRES(mu_);
  Status retire_region(uint64_t region);
  std::vector<std::shared_ptr<Peer>> all_peers();
  void pass_service(Nanos deadline);
  Status revoke_for(const std::shared_ptr<Peer>& peer, uint64_t region);
  void forget_grants(std::unique_ptr<const Grants> old);
  bool pass_every_loop();
  // Of a fence that begins now: when lanes that still hold memory are closed, and when it has
  // failed.
  struct FenceTimes {
    Nanos close_at, give_up;
  };
  FenceTimes fence_times() const;
  static Status fence(const std::vector<std::shared_ptr<Peer>>& peers,
                      const Fence::Question& question, Nanos close_at, Nanos give_up);
  size_t end_all() noexcept TCPX_NOT_CHECKED;  // nobody else is left
  Status start_threads(std::vector<Fd> listeners);

  // GreetingHost: any thread.
  bool requires_auth() const override { return shared_.options.auth; }
  wire::Uid uid() const override { return uid_; }
  Status key_for(const wire::Hello& hello, auth::Key* key) override;
  // HandshakeHost, ServiceOwner, ConnectorHost: service thread.
  Status welcome_for(const wire::Hello& hello, const wire::Address& remote,
                     const auth::Key& session_key, wire::Welcome* welcome) override;
  void welcome_over(uint64_t session) noexcept override;
  void accepted(Handshake& handshake) override;
  void refused(const Handshake& handshake, bool timed_out) override {
    doorkeeper_.refused(handshake, timed_out);
  }
  void crowded(size_t evicted) override { doorkeeper_.crowded(evicted); }
  Nanos tick(Nanos now) override;
  void failed(const char* what, const Status& status) noexcept override {
    doorkeeper_.failed(what, status);
  }
  void shake_hands(std::unique_ptr<Handshake> handshake, Service::OnEnd on_end) override;
  Status adopt_lane(Peer& peer, uint32_t index, Handshake& handshake) override;
  const std::vector<LocalAddress>& local_addresses() const override { return chosen_; }
  const EngineOptions& options() const override { return shared_.options; }
  wire::PathMask offer(const wire::Address& remote) const override;
  const PathWish& path_wish() const override { return shared_.path_wish; }
  void connected(const std::shared_ptr<Peer>& peer) override;

  Config config_;
  std::unique_ptr<Movers> own_movers_;          // outlives the loops
  std::unique_ptr<EngineShared> shared_owner_;  // left behind if a thread hangs in a plugin
  EngineShared& shared_;
  wire::Uid uid_{};
  Keyring keys_;
  std::vector<LocalAddress> all_addresses_;  // of the host, to name interfaces
  std::vector<LocalAddress> chosen_;         // by the `interfaces` option
  std::vector<wire::Address> advertised_;
  std::vector<uint8_t> connection_info_;
  std::unique_ptr<Service> service_;
  Doorkeeper doorkeeper_;
  std::unique_ptr<Door> door_;
  Paths paths_;

  Mutex mu_;  // never held while entering a loop
  bool shutting_down_ TCPX_GUARDED_BY(mu_) = false;
  std::map<uint64_t, std::shared_ptr<Peer>> peers_ TCPX_GUARDED_BY(mu_);
  // Gone, but their lanes are not yet.
  std::vector<std::shared_ptr<Peer>> held_peers_ TCPX_GUARDED_BY(mu_);
  // Inbound ones, by their number. Lanes may join one from the moment its Welcome is sent, which is
  // before there is a peer.
  struct Session {
    wire::Uid client{};
    auth::Key key;
    std::weak_ptr<Peer> peer;
    bool has_peer = false;  // or had: it may be gone
  };
  std::map<uint64_t, Session> sessions_ TCPX_GUARDED_BY(mu_);
  uint64_t next_peer_ TCPX_GUARDED_BY(mu_) = 1;
  std::deque<uint64_t> arrivals_ TCPX_GUARDED_BY(mu_);  // for accept()
  std::condition_variable arrived_;

  // Service thread only:
  std::vector<std::shared_ptr<Connector>> connectors_;
  std::vector<std::shared_ptr<Peer>> tick_scratch_;
};

}  // namespace tcpx
