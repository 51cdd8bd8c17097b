#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "base/caught.h"
#include "base/ids.h"
#include "base/text.h"
#include "base/units.h"
#include "base/version.h"
#include "base/wait.h"
#include "engine/goodbye.h"
#include "engine/notice_queue.h"
#include "engine/report.h"
#include "gpu/gpu_movers.h"
#include "memory/host_mover.h"
#include "session/sockets.h"
#include "topo/usable_cores.h"
#include "wire/mac.h"

namespace tcpx {

namespace {

constexpr Nanos kTick = 20 * kMilli;
constexpr Nanos kIdleTick = 250 * kMilli;
constexpr size_t kKeptEndedPeers = 256;

std::unique_ptr<Movers> make_movers(const EngineOptions& options, const Log& log) {
  gpu::GpuMovers::Settings settings;
  settings.enabled = options.gpu_memory;
  settings.stages_host = options.stage_host;
  settings.gpu.staging = options.gpu_staging;
  settings.gpu.slot = options.gpu_slot;
  settings.gpu.chunk = options.chunk_bytes;
  settings.gpu.blocks = options.gpu_blocks;
  // Its thread spins where the loops may: on two cores it would keep one from who is awaited.
  settings.gpu.spin = topo::usable_cores() > 2 ? options.spin : 0;
  return std::make_unique<gpu::GpuMovers>(settings, log);
}

}  // namespace

EngineCore::EngineCore(Config config, Log log, Movers* movers)
    : config_(std::move(config)),
      shared_owner_(std::make_unique<EngineShared>()),
      shared_(*shared_owner_),
      doorkeeper_(shared_, [this](Guest guest) { return service_->greet(std::move(guest)); }) {
  shared_.options = config_.options;
  shared_.log = log;
  if (movers == nullptr) own_movers_ = make_movers(config_.options, log);
  shared_.movers = own_movers_ ? own_movers_.get() : movers;
  const EngineOptions& options = shared_.options;
  shared_.inbox = std::make_unique<NoticeQueue>(
      std::max(options.inbox_bytes, options.max_notify_bytes + NoticeQueue::kEntryBytes));
  tick_scratch_.reserve(64);
}

Status EngineCore::create(Config config, Log log, Movers* movers,
                          std::unique_ptr<EngineCore>* out) {
  std::unique_ptr<EngineCore> engine(new EngineCore(std::move(config), log, movers));
  Status status = engine->init();
  if (status) *out = std::move(engine);
  return status;
}

// ---- starting ------------------------------------------------------------------------------

// A required path is one that peers must have, and one that is only allowed may be missing here.
Status EngineCore::init_paths() {
  shared_.path_wish = PathWish::of(path_table(), shared_.options);
  return paths_.open(shared_.options, shared_.path_wish, shared_.log);
}

Status EngineCore::init() {
  wire::keep_crypto_until_the_end();
  if (Status status = random_bytes(uid_); !status) return status;
  if (Status status = keys_.load(shared_.options, shared_.log); !status) return status;
  if (Status status = init_paths(); !status) return status;
  std::vector<Fd> listeners;
  if (Status status = init_listeners(&listeners); !status) return status;
  make_connection_info();
  if (Status status = init_loops(); !status) return status;
  say_hello(listeners.size());
  return start_threads(std::move(listeners));
}

Status EngineCore::start_threads(std::vector<Fd> listeners) {
  const EngineOptions& options = shared_.options;
  service_ = std::make_unique<Service>(static_cast<ServiceOwner&>(*this), options.max_half_open);
  shared_.defer = [this](std::function<void()> task) { service_->defer(std::move(task)); };
  shared_.hurry = [this] { service_->hurry(); };
  if (Status status = service_->start(); !status) return status;
  uint64_t salt = 0;
  if (Status status = random_bytes({reinterpret_cast<uint8_t*>(&salt), sizeof salt}); !status)
    return status;
  door_ = std::make_unique<Door>(
      doorkeeper_, static_cast<ServiceOwner&>(*this),
      Door::Settings{options.handshake_timeout, options.max_half_open, salt});
  return door_->start(std::move(listeners));
}

wire::PathMask EngineCore::offer(const wire::Address& remote) const {
  return paths_.offer({on_this_host(remote)});
}

Status EngineCore::init_listeners(std::vector<Fd>* listeners) {
  const EngineOptions& options = shared_.options;
  if (Status status = list_local_addresses(&all_addresses_); !status) return status;
  if (Status status = choose_addresses(options.interfaces, all_addresses_, &chosen_); !status)
    return status;
  PortRange ports;
  if (Status status = parse_port_range(options.port_range, &ports); !status) return status;

  std::vector<wire::Address> bind_to;
  wire::Address asked;
  bool wildcard = false;
  if (!options.listen.empty()) {
    if (Status status = parse_ip(options.listen, &asked); !status) return status;
    bind_to.push_back(asked);
    wildcard = options.listen == "0.0.0.0" || options.listen == "::";
  } else {
    for (const LocalAddress& local : chosen_) bind_to.push_back(local.address);
  }
  for (const wire::Address& address : bind_to) {
    if (listeners->size() == wire::kMaxAddresses) break;
    Fd fd;
    wire::Address bound;
    if (Status status = open_listener(address, ports, &fd, &bound); !status) return status;
    listeners->push_back(std::move(fd));
    if (!wildcard) {
      advertised_.push_back(bound);
      continue;
    }
    for (const LocalAddress& local : chosen_) {
      if (is_v4(local.address) != is_v4(bound)) continue;
      advertised_.push_back(local.address);
      advertised_.back().port = bound.port;
    }
  }
  if (!options.advertise.empty()) {
    wire::Address advertise;
    if (Status status = parse_ip(options.advertise, &advertise); !status) return status;
    advertise.port = advertised_.empty() ? 0 : advertised_.front().port;
    advertised_ = {advertise};
  }
  if (advertised_.size() > wire::kMaxAddresses) advertised_.resize(wire::kMaxAddresses);
  return {};
}

Status EngineCore::init_loops() {
  uint32_t count = shared_.options.io_threads;
  shared_.cores = topo::usable_cores();
  // Half the cores, the other half is for the application; but two where there are two, so that
  // both can move data while the application waits for it.
  if (count == 0) count = std::clamp(shared_.cores / 2, std::min(shared_.cores, 2u), 8u);
  // One core is left for who is woken, or for the application.
  shared_.drivers.spin_up_to(static_cast<int>(std::max(2u, shared_.cores) - 1));
  for (uint32_t i = 0; i < count; ++i) {
    Loop::Settings settings;
    settings.spin = shared_.options.spin;
    settings.drivers = &shared_.drivers;
    settings.movers = shared_.movers;
    std::unique_ptr<Loop> loop;
    if (Status status = Loop::create(settings, &loop); !status) return status;
    shared_.loops.push_back(std::move(loop));
  }
  return {};
}

void EngineCore::make_connection_info() {
  wire::ConnectionInfo info;
  info.uid = uid_;
  info.name = shared_.options.name;
  info.addresses = advertised_;
  connection_info_ = keys_.make_info(std::move(info));
}

uint32_t EngineCore::resolved_lanes() const {
  if (shared_.options.lanes != 0) return shared_.options.lanes;
  // One lane per interface at least; several per interface where there are cores to serve them.
  uint32_t by_cores = std::min<uint32_t>(4, static_cast<uint32_t>(shared_.loops.size()));
  std::set<std::string> interfaces;
  for (const LocalAddress& local : chosen_) interfaces.insert(local.interface);
  uint32_t by_interfaces = static_cast<uint32_t>(interfaces.size());
  return std::clamp(std::max(by_cores, by_interfaces), 1u, wire::kMaxLanes);
}

void EngineCore::say_hello(size_t listeners) {
  std::vector<std::string> used, unused;
  for (const wire::Address& address : advertised_) used.push_back(to_string(address));
  for (const LocalAddress& local : all_addresses_) {
    bool taken = std::any_of(chosen_.begin(), chosen_.end(), [&](const LocalAddress& other) {
      return other.interface == local.interface;
    });
    if (!taken) unused.push_back(local.interface);
  }
  std::sort(unused.begin(), unused.end());
  unused.erase(std::unique(unused.begin(), unused.end()), unused.end());
  shared_.log.info(
      "tcpx {} engine {}: {} listeners at {}; interfaces not used: {}; {} progress "
      "threads, {} lanes per peer, auth {}",
      kVersion, to_hex(uid_).substr(0, 8), listeners, join(used, " "),
      unused.empty() ? "none" : join(unused, " "), shared_.loops.size(), resolved_lanes(),
      keys_.describe());
}

// ---- accepting -----------------------------------------------------------------------------

std::shared_ptr<Peer> EngineCore::find_session(const wire::Hello& hello) {
  MutexLock lock(mu_);
  auto found = sessions_.find(hello.session);
  if (found == sessions_.end() || found->second.client != hello.uid) return nullptr;
  std::shared_ptr<Peer> peer = found->second.peer.lock();
  return peer == nullptr || peer->over() ? nullptr : peer;
}

Status EngineCore::key_for(const wire::Hello& hello, auth::Key* key) {
  if (hello.kind == wire::HelloKind::kNewSession) return keys_.key_of_client(hello.key_id, key);
  MutexLock lock(mu_);
  auto found = sessions_.find(hello.session);
  if (found == sessions_.end() || found->second.client != hello.uid)
    return lane_error(TCPX_NOT_FOUND, "a lane asked for a session that is not this client's");
  *key = found->second.key;
  return {};
}

void EngineCore::welcome_over(uint64_t session) noexcept {
  MutexLock lock(mu_);
  auto found = sessions_.find(session);
  if (found != sessions_.end() && !found->second.has_peer) sessions_.erase(found);
}

Status EngineCore::welcome_for(const wire::Hello& hello, const wire::Address& remote,
                               const auth::Key& session_key, wire::Welcome* welcome) {
  welcome->lanes = std::min(hello.lanes, wire::kMaxLanes);
  welcome->chunk_bytes = shared_.options.chunk_bytes;
  welcome->window =
      hello.window == 0 ? shared_.options.window : std::min(hello.window, shared_.options.window);
  welcome->name = shared_.options.name;
  welcome->epoch = shared_.epoch.load();
  welcome->addresses = advertised_;
  welcome->paths = hello.paths & offer(remote);
  if (welcome->paths == 0)
    return peer_error(
        TCPX_PATH_UNAVAILABLE,
        strf("there is no path that both this engine and the client have and allow: {}",
             shared_.path_wish.text()));
  if (hello.kind == wire::HelloKind::kJoinLane) {
    std::shared_ptr<Peer> peer = find_session(hello);
    if (peer == nullptr || !peer->may_join(hello.lane))
      return lane_error(TCPX_NOT_FOUND,
                        strf("session ended, or lane {} is not one that is due", hello.lane));
    welcome->session = hello.session;
    return {};
  }
  {
    MutexLock lock(mu_);
    if (shutting_down_) return peer_error(TCPX_SHUTDOWN, "the engine is being destroyed");
    auto living = std::count_if(peers_.begin(), peers_.end(),
                                [](auto& entry) { return !entry.second->over(); });
    if (static_cast<size_t>(living) >= shared_.options.max_peers)
      return peer_error(TCPX_LIMIT,
                        strf("max_peers ({}) are connected", shared_.options.max_peers));
  }
  std::array<uint8_t, 8> random;
  if (Status status = random_bytes(random); !status) return status;
  memcpy(&welcome->session, random.data(), random.size());
  if (welcome->session == 0) welcome->session = 1;
  MutexLock lock(mu_);
  sessions_[welcome->session] = {hello.uid, session_key, {}, false};
  return {};
}

std::shared_ptr<Peer> EngineCore::new_peer(bool inbound) {
  MutexLock lock(mu_);
  forget_ended_inbound_locked();
  auto peer = std::make_shared<Peer>(shared_, next_peer_++, inbound);
  peers_[peer->id()] = peer;
  return peer;
}

// A fence has to know of it until the plugin comes back.
void EngineCore::remember_if_held_locked(const std::shared_ptr<Peer>& peer) {
  if (!peer->dismantle(0)) held_peers_.push_back(peer);
}

// Clients come and go; what remains of those that went is kept for a while, for its status.
void EngineCore::forget_ended_inbound_locked() {
  if (peers_.size() < kKeptEndedPeers) return;
  size_t ended = 0;
  for (auto& [id, peer] : peers_)
    if (peer->inbound && peer->ended_wholly()) ++ended;
  for (auto it = peers_.begin(); it != peers_.end() && ended > kKeptEndedPeers / 2;) {
    bool gone = it->second->inbound && it->second->ended_wholly();
    if (gone) {
      remember_if_held_locked(it->second);
      sessions_.erase(it->second->generation());
      --ended;
    }
    it = gone ? peers_.erase(it) : std::next(it);
  }
  // Not everybody accepts what arrives.
  std::erase_if(arrivals_, [this](uint64_t id) TCPX_REQUIRES(mu_) { return !peers_.contains(id); });
}

void EngineCore::accepted(Handshake& handshake) {
  const wire::Hello& hello = handshake.hello();
  const wire::Welcome& welcome = handshake.welcome();
  if (hello.kind == wire::HelloKind::kJoinLane) {
    std::shared_ptr<Peer> peer = find_session(hello);
    if (peer == nullptr) return;
    if (Status status = adopt_lane(*peer, hello.lane, handshake); !status)
      shared_.log.warn("lane {} from {}: {}", hello.lane, handshake.remote(), status.to_string());
    return;
  }
  std::shared_ptr<Peer> peer = new_peer(true);
  peer->expect_lanes(welcome.lanes);
  peer->established({hello.uid, welcome.session, shared_.options.chunk_bytes, welcome.window,
                     handshake.session_key()},
                    hello.name);
  peer->start_epochs(hello.epoch, welcome.epoch);
  {
    MutexLock lock(mu_);
    Session& session = sessions_[welcome.session];
    session.peer = peer;
    session.has_peer = true;
  }
  peer->or_fail([&] {
    if (Status status = adopt_lane(*peer, 0, handshake); !status) return peer->end(status);
    auto on_up = [this, weak = std::weak_ptr<Peer>(peer)] {
      std::shared_ptr<Peer> up = weak.lock();
      if (up == nullptr) return;
      connected(up);
      MutexLock lock(mu_);
      arrivals_.push_back(up->id());
      arrived_.notify_one();
    };
    peer->connected(on_up, "");
  });
}

std::string EngineCore::interface_of(int fd) const {
  wire::Address here = local_address_of(fd);
  for (const LocalAddress& local : all_addresses_)
    if (local.address.ip == here.ip) return local.interface;
  return ip_to_string(here);
}

bool EngineCore::on_this_host(const wire::Address& address) const {
  return std::any_of(all_addresses_.begin(), all_addresses_.end(),
                     [&](const LocalAddress& local) { return local.address.ip == address.ip; });
}

LaneFactory EngineCore::lane_factory(const Path& path, Peer& peer, uint32_t index,
                                     Handshake& handshake) {
  StreamSettings stream;
  // What is longer than our own limit is discarded and answered, not a breach of the protocol.
  stream.limits.max_notify_bytes = wire::kMaxNotifyBytes;
  stream.interface = interface_of(handshake.fd());
  stream.remote = handshake.remote();
  stream.socket_buffer = shared_.options.socket_buffer;
  stream.same_host = on_this_host(remote_address_of(handshake.fd()));
  auto fd = std::make_shared<Fd>(handshake.take_fd());
  return [&path, stream, fd, index, key = peer.identity().session_key](Loop& loop, LaneSink& sink) {
    return path.make_lane({std::move(*fd), stream, index, key.bytes()}, loop, sink);
  };
}

// By the best path that both ends have.
Status EngineCore::adopt_lane(Peer& peer, uint32_t index, Handshake& handshake) {
  const wire::PathMask both = handshake.welcome().paths & offer(remote_address_of(handshake.fd()));
  const Path* path = paths_.choose(both);
  if (path == nullptr)
    return lane_error(TCPX_PATH_UNAVAILABLE,
                      strf("the peer offers lane {} none of our paths", index));
  return peer.add_lane(index, lane_factory(*path, peer, index, handshake), path->traits());
}

void EngineCore::connected(const std::shared_ptr<Peer>& peer) {
  shared_.counters.peers_connected.fetch_add(1);
  const Peer::Notes notes = peer->notes();
  const std::string path = path_of(*peer);
  shared_.log.info("peer {} \"{}\" ({}): path {}, {} lanes via {}{}{}", peer->id(),
                   escaped(peer->name()), peer->inbound ? "came to us" : "connected", path,
                   peer->live_lanes(), interfaces_of(*peer),
                   paths_.why_not_better(path, notes.path),
                   notes.connect.empty() ? "" : "; lanes missing: " + notes.connect);
}

Nanos EngineCore::tick(Nanos now) {
  tick_scratch_.clear();
  {
    MutexLock lock(mu_);
    std::erase_if(held_peers_, [](auto& peer) { return peer->dismantled(); });
    tick_scratch_ = held_peers_;
    for (auto& [id, peer] : peers_) tick_scratch_.push_back(peer);
  }
  bool any = !connectors_.empty();
  for (auto& peer : tick_scratch_) {
    if (peer->dismantled()) continue;
    any = true;
    // What could not be done is tried again with the next tick.
    try {
      peer->tick(now);
    } catch (...) {
      failed("a peer's deadlines and watchdogs", caught(TCPX_BLAST_NOTHING));
    }
  }
  tick_scratch_.clear();
  for (size_t i = 0; i < connectors_.size(); ++i) connectors_[i]->tick(now);
  std::erase_if(connectors_, [](auto& connector) { return connector->finished(); });
  Nanos next = now + (any ? kTick : kIdleTick);
  for (auto& connector : connectors_) next = std::min(next, connector->wants_tick());
  return next;
}

// For who asks again and again without a transfer of its own, e.g. for notifications: if it has the
// core that the loops' threads would need, it does their work. If not, they are more than this one.
void EngineCore::poll() {
  if (!shared_.caller_takes_a_core()) return;
  for (auto& loop : shared_.loops) (void)loop->drive([] { return false; }, 0, Loop::Caller::kPolls);
}

void EngineCore::shake_hands(std::unique_ptr<Handshake> handshake, Service::OnEnd on_end) {
  service_->add_client(std::move(handshake), std::move(on_end));
}

// ---- connecting ----------------------------------------------------------------------------

Status EngineCore::connect(std::span<const uint8_t> bytes, uint64_t* peer) {
  wire::ConnectionInfo info;
  ConnectTarget target;
  target.keys.resize(1);
  if (Status status = keys_.open_info(bytes, &info, &target.keys[0]); !status) return status;
  target.addresses = info.addresses;
  target.uid = info.uid;
  return start_connecting(std::move(target), peer);
}

Status EngineCore::connect_address(const std::string& address, uint64_t* peer) {
  ConnectTarget target;
  if (Status status = keys_.address_keys(&target.keys); !status) return status;
  Endpoint endpoint;
  if (Status status = split_endpoint(address, &endpoint); !status) return status;
  if (endpoint.port == 0)
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("\"{}\": port 0 cannot be connected to", escaped(address)));
  if (endpoint.address) {
    target.addresses = {*endpoint.address};
  } else if (Status status = Lookup::start(endpoint.host, endpoint.port, service_->share_wake(),
                                           &target.lookup);
             !status) {
    return status;
  }
  target.retry = true;
  return start_connecting(std::move(target), peer);
}

Status EngineCore::start_connecting(ConnectTarget target, uint64_t* id) {
  std::shared_ptr<Peer> peer = new_peer(false);
  try {
    service_->defer([this, peer, target = std::move(target)]() mutable {
      peer->or_fail([&] {
        auto connector = std::make_shared<Connector>(static_cast<ConnectorHost&>(*this), peer,
                                                     std::move(target), resolved_lanes());
        connectors_.push_back(connector);
        connector->start();
      });
    });
  } catch (...) {
    MutexLock lock(mu_);
    peers_.erase(peer->id());
    throw;
  }
  *id = peer->id();
  return {};
}

Status EngineCore::accept(Nanos deadline, uint64_t* peer) {
  MutexLock lock(mu_);
  wait_until(arrived_, lock, deadline,
             [&]() TCPX_REQUIRES(mu_) { return !arrivals_.empty() || shutting_down_; });
  if (shutting_down_) return bad_call(TCPX_SHUTDOWN, "the engine is being destroyed");
  if (arrivals_.empty()) return Status::in_progress();
  *peer = arrivals_.front();
  arrivals_.pop_front();
  return {};
}

Status EngineCore::find_peer(uint64_t id, std::shared_ptr<Peer>* out) {
  MutexLock lock(mu_);
  auto found = peers_.find(id);
  if (found == peers_.end())
    return bad_call(TCPX_NOT_FOUND, strf("no peer {}; it was disconnected, or never "
                                         "connected",
                                         id));
  *out = found->second;
  return {};
}

Status EngineCore::disconnect(uint64_t id) {
  std::shared_ptr<Peer> peer;
  if (Status status = find_peer(id, &peer); !status) return status;
  say_goodbye({peer}, peer_error(TCPX_CANCELLED, "disconnected by this side"), kGoodbyePatience);
  (void)peer->dismantle(kGoodbyePatience);
  MutexLock lock(mu_);
  remember_if_held_locked(peer);
  peers_.erase(id);
  std::erase(arrivals_, id);
  sessions_.erase(peer->generation());
  return {};
}

// ---- transfers -----------------------------------------------------------------------------

Status EngineCore::prepare(uint64_t id, tcpx_op op, std::span<const tcpx_local_piece> local,
                           std::span<const tcpx_remote_piece> remote,
                           std::shared_ptr<TransferState>* out) {
  std::shared_ptr<Peer> peer;
  if (Status status = find_peer(id, &peer); !status) return status;
  if (peer->over()) return peer->end_status();
  uint64_t bytes = 0;
  for (const tcpx_local_piece& piece : local) bytes += std::min(piece.length, UINT64_MAX - bytes);
  // Lanes of one loop send one after the other: they get no parts of their own, but take turns with
  // what is longer than a chunk.
  uint64_t share = bytes / std::min<size_t>(resolved_lanes(), shared_.loops.size()) + 4095;
  PlanRequest request{op, local, remote, nullptr, 0, shared_.movers};
  wire::Uid uid;
  if (peer->is_established()) {
    uid = peer->identity().uid;
    request.remote_engine = uid.data();
  }
  request.chunk_bytes =
      std::clamp(share - share % 4096, std::min(tuning::kSmallestCut, shared_.options.chunk_bytes),
                 shared_.options.chunk_bytes);
  auto transfer = std::make_shared<TransferState>();
  if (Status status = make_plan(request, shared_.regions, &transfer->plan); !status) return status;
  transfer->peer = std::move(peer);
  *out = std::move(transfer);
  return {};
}

}  // namespace tcpx
