// The start of an engine: what it is, where it listens, its loops, then everything that has a
// thread.
#include <algorithm>

#include "base/ids.h"
#include "base/text.h"
#include "base/version.h"
#include "engine/engine.h"
#include "engine/notice_queue.h"
#include "gpu/gpu_movers.h"
#include "topo/usable_cores.h"
#include "wire/mac.h"

namespace tcpx {

namespace {

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
      service_(static_cast<ServiceOwner&>(*this), config_.options.max_half_open),
      doorkeeper_(shared_, [this](Guest guest) { return service_.greet(std::move(guest)); }),
      paths_(shared_, addresses_),
      peers_(shared_),
      regions_(shared_, peers_),
      reception_(shared_, keys_, addresses_, paths_, peers_),
      dialler_({shared_, addresses_, paths_, service_}, keys_, peers_) {
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
  Status status = engine->start();
  if (status) *out = std::move(engine);
  return status;
}

Status EngineCore::start() {
  wire::keep_crypto_until_the_end();
  if (Status status = random_bytes(shared_.uid); !status) return status;
  if (Status status = keys_.load(shared_.options, shared_.log); !status) return status;
  if (Status status = paths_.open(); !status) return status;
  std::vector<Fd> listeners;
  if (Status status = addresses_.open(shared_.options, &listeners); !status) return status;
  make_connection_info();
  if (Status status = make_loops(); !status) return status;
  shared_.lanes_per_peer = lanes_per_peer();
  say_hello(listeners.size());
  return start_threads(std::move(listeners));
}

void EngineCore::make_connection_info() {
  wire::ConnectionInfo info;
  info.uid = shared_.uid;
  info.name = shared_.options.name;
  info.addresses = addresses_.advertised();
  connection_info_ = keys_.make_info(std::move(info));
}

Status EngineCore::make_loops() {
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

// One lane per interface at least; several per interface where there are cores to serve them.
uint32_t EngineCore::lanes_per_peer() const {
  if (shared_.options.lanes != 0) return shared_.options.lanes;
  uint32_t by_cores = std::min<uint32_t>(4, static_cast<uint32_t>(shared_.loops.size()));
  return std::clamp(std::max(by_cores, addresses_.interfaces_used()), 1u, wire::kMaxLanes);
}

void EngineCore::say_hello(size_t listeners) const {
  std::vector<std::string> used, unused = addresses_.interfaces_unused();
  for (const wire::Address& address : addresses_.advertised()) used.push_back(to_string(address));
  shared_.log.info(
      "tcpx {} engine {}: {} listeners at {}; interfaces not used: {}; {} progress "
      "threads, {} lanes per peer, auth {}",
      kVersion, to_hex(shared_.uid).substr(0, 8), listeners, join(used, " "),
      unused.empty() ? "none" : join(unused, " "), shared_.loops.size(), shared_.lanes_per_peer,
      keys_.describe());
}

Status EngineCore::start_threads(std::vector<Fd> listeners) {
  const EngineOptions& options = shared_.options;
  shared_.defer = [this](std::function<void()> task) { service_.defer(std::move(task)); };
  shared_.hurry = [this] { service_.hurry(); };
  if (Status status = service_.start(); !status) return status;
  uint64_t salt = 0;
  if (Status status = random_bytes({reinterpret_cast<uint8_t*>(&salt), sizeof salt}); !status)
    return status;
  door_ = std::make_unique<Door>(
      doorkeeper_, reception_,
      Door::Settings{options.handshake_timeout, options.max_half_open, salt});
  return door_->start(std::move(listeners));
}

}  // namespace tcpx
