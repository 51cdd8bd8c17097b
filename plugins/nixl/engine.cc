#include "engine.h"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <vector>

#include "gpu_here.h"
#include "metadata.h"
#include "params.h"
#include "range_blob.h"
#include "request.h"
#include "status.h"

namespace tcpx_nixl {

namespace {

tcpx_log_level level_named(const std::string& name) {
  if (name == "error") return TCPX_LOG_ERROR;
  if (name == "warn") return TCPX_LOG_WARN;
  if (name == "debug") return TCPX_LOG_DEBUG;
  if (name == "trace") return TCPX_LOG_TRACE;
  return TCPX_LOG_INFO;
}

bool is_memory(nixl_mem_t type) {
  return type == DRAM_SEG || type == VRAM_SEG;
}

uint32_t tcpx_memory_of(nixl_mem_t type) {
  return type == VRAM_SEG ? TCPX_MEMORY_CUDA : TCPX_MEMORY_HOST;
}

struct Pieces {
  std::vector<tcpx_local_piece> local;
  std::vector<tcpx_remote_piece> remote;
};

// Offsets that do not lie in the region are refused by tcpx_prepare.
bool make_pieces(const nixl_meta_dlist_t& local, const nixl_meta_dlist_t& remote, Pieces* out) {
  if (local.descCount() != remote.descCount() || local.descCount() == 0) return false;
  if (!is_memory(local.getType()) || !is_memory(remote.getType())) return false;
  out->local.reserve(static_cast<size_t>(local.descCount()));
  out->remote.reserve(static_cast<size_t>(local.descCount()));
  auto there = remote.begin();
  for (const nixlMetaDesc& here : local) {
    auto* local_md = static_cast<const LocalMD*>(here.metadataP);
    auto* remote_md = static_cast<const RemoteMD*>(there->metadataP);
    if (local_md == nullptr || remote_md == nullptr) return false;
    out->local.push_back({local_md->region, here.addr - local_md->range.base, here.len});
    out->remote.push_back({&remote_md->region, there->addr - remote_md->base, there->len});
    ++there;
  }
  return true;
}

std::string text_of(nixl_mem_t type, const RangePlace& place, uint64_t length) {
  char text[112];
  snprintf(text, sizeof text, "%" PRIu64 " bytes at %#" PRIx64 " of %s device %" PRIu64, length,
           place.base, type == VRAM_SEG ? "VRAM" : "DRAM", place.device);
  return text;
}

// What a description says of where the memory lies, against what NIXL says. The number of host
// memory is the user's own.
bool is_as_described(nixl_mem_t type, uint64_t device, const tcpx_remote_region& region) {
  return region.memory == tcpx_memory_of(type) && (type != VRAM_SEG || region.device == device);
}

std::chrono::microseconds whole_us(double us) {
  return std::chrono::microseconds(std::llround(us));
}

}  // namespace

// ---- life ----------------------------------------------------------------------------------

TcpxEngine::TcpxEngine(const nixlBackendInitParams& params)
    : nixlBackendEngine(&params), log_(params.localAgent) {
  initErr = !start(params);
}

bool TcpxEngine::start(const nixlBackendInitParams& params) {
  EngineSettings settings = settings_for(params);
  tcpx::Result created = tcpx::Engine::create(
      settings.options, &engine_,
      [this](tcpx_log_level level, const char* line) { log_.from_engine(level, line); });
  if (!created) {
    log_.log(TCPX_LOG_ERROR, "no engine: " + created.text());
    return false;
  }
  log_.set_level(level_named(effective_value(engine_.config_text(), "log_level")));
  gpu_memory_ = effective_value(engine_.config_text(), "gpu_memory") != "off";
  for (const std::string& name : settings.unknown)
    log_.log(TCPX_LOG_WARN, "parameter " + quoted(name) + " is no option of this backend; ignored");
  tcpx::Bytes info = engine_.connection_info();
  conn_info_.assign(info.begin(), info.end());
  ranges_ = std::make_unique<Ranges>(engine_.raw());
  connections_ = std::make_unique<Connections>(engine_.raw(), localAgent, conn_info_);
  inbox_ = std::make_unique<Inbox>(engine_.raw(), log_);
  return true;
}

TcpxEngine::~TcpxEngine() try {
  if (made_here_
          .is_inherited()) {  // the parent's: left as it is, with the threads that are not here
    (void)ranges_.release();
    (void)connections_.release();
    (void)inbox_.release();
    return;
  }
  if (engine_ && log_.enabled(TCPX_LOG_DEBUG))
    log_.log(TCPX_LOG_DEBUG, "counters: " + engine_.counters_json());
  connections_.reset();  // its goodbyes are said on threads that use the engine
  engine_.destroy();
} catch (...) {  // no memory for the counters
}

nixl_status_t TcpxEngine::failed(tcpx_code code, const std::string& what) const {
  log_.log(TCPX_LOG_ERROR, what + ": " + tcpx_code_name(code) + ": " + tcpx_last_error());
  return to_nixl(code);
}

// ---- memory --------------------------------------------------------------------------------

nixl_mem_list_t TcpxEngine::supported_mems() {
  if (gpu_may_be_used()) return {DRAM_SEG, VRAM_SEG};
  return {DRAM_SEG};
}

nixl_mem_list_t TcpxEngine::getSupportedMems() const {
  return gpu_memory_ ? supported_mems() : nixl_mem_list_t{DRAM_SEG};
}

// GPU memory is taken whether it was advertised or not: CUDA may be here only now.
nixl_status_t TcpxEngine::registerMem(const nixlBlobDesc& mem, const nixl_mem_t& type,
                                      nixlBackendMD*& out) {
  if (!is_memory(type)) return NIXL_ERR_NOT_SUPPORTED;
  auto what = [&] { return "registering " + text_of(type, {mem.addr, mem.devId}, mem.len); };
  if (type == VRAM_SEG && mem.devId > UINT16_MAX) {
    log_.log(TCPX_LOG_ERROR, what() + ": no GPU has this number");
    return NIXL_ERR_INVALID_PARAM;
  }
  const Range range = range_of(mem.addr, mem.len, type, mem.devId);
  tcpx_region region = 0;
  if (tcpx_code code = ranges_->add(range, &region); code != TCPX_OK) return failed(code, what());
  tcpx_remote_region named;
  tcpx_code code = name_region(region, &named);
  if (code == TCPX_OK && is_as_described(type, mem.devId, named)) {
    out = new LocalMD(region, range, mem.devId);
    return NIXL_SUCCESS;
  }
  nixl_status_t status = NIXL_ERR_INVALID_PARAM;
  if (code != TCPX_OK)
    status = failed(code, what());
  else  // only of DRAM: what is said to be of a GPU has been looked at
    log_.log(TCPX_LOG_ERROR, what() + ": this is memory of cuda:" + std::to_string(named.device) +
                                 "; register it as VRAM");
  ranges_->forget(range);
  return status;
}

nixl_status_t TcpxEngine::deregisterMem(nixlBackendMD* meta) {
  std::unique_ptr<LocalMD> md(static_cast<LocalMD*>(meta));
  tcpx_code code = ranges_->remove(md->range);
  return code == TCPX_OK ? NIXL_SUCCESS : failed(code, "deregistering memory");
}

tcpx_code TcpxEngine::export_region(tcpx_region region, std::string* out) const {
  tcpx::Bytes bytes;
  tcpx_code code = tcpx::detail::fill(bytes, [&](void* to, size_t* length) {
                     return tcpx_region_export(engine_.raw(), region, to, length);
                   }).code();
  out->assign(bytes.begin(), bytes.end());  // `out` may still hold another range's description
  return code;
}

// As an initiator names it.
tcpx_code TcpxEngine::name_region(tcpx_region region, tcpx_remote_region* out) const {
  std::string description;
  tcpx_code code = export_region(region, &description);
  return code == TCPX_OK ? tcpx_region_import(description.data(), description.size(), out) : code;
}

nixl_status_t TcpxEngine::getPublicData(const nixlBackendMD* meta, std::string& out) const {
  auto* md = static_cast<const LocalMD*>(meta);
  tcpx_code code = export_region(md->region, &out);
  if (code != TCPX_OK) return failed(code, "describing memory");
  add_place({md->range.base, md->device}, &out);
  return NIXL_SUCCESS;
}

nixl_status_t TcpxEngine::loadLocalMD(nixlBackendMD* input, nixlBackendMD*& out) {
  auto* md = static_cast<const LocalMD*>(input);
  tcpx_remote_region region;
  tcpx_code code = name_region(md->region, &region);
  if (code != TCPX_OK) return failed(code, "describing memory");
  out = new RemoteMD(region, md->range.base);
  return NIXL_SUCCESS;
}

// NIXL carries kind, address, length and device beside what getPublicData gave it, without a check.
nixl_status_t TcpxEngine::loadRemoteMD(const nixlBlobDesc& input, const nixl_mem_t& type,
                                       const std::string& agent, nixlBackendMD*& out) {
  if (!is_memory(type)) return NIXL_ERR_NOT_SUPPORTED;
  if (connections_->find(agent) == nullptr) return NIXL_ERR_NOT_FOUND;
  RangePlace place;
  std::string description;
  if (!split_place(input.metaInfo, &place, &description)) {
    log_.log(TCPX_LOG_ERROR,
             "memory of " + quoted(agent) + ": its description is damaged, or of another version");
    return NIXL_ERR_MISMATCH;
  }
  tcpx_remote_region region;
  tcpx_code code = tcpx_region_import(description.data(), description.size(), &region);
  if (code != TCPX_OK) return failed(code, "loading memory of " + quoted(agent));
  if (region.length != input.len || place != RangePlace{input.addr, input.devId} ||
      !is_as_described(type, input.devId, region)) {
    nixl_mem_t described = region.memory == TCPX_MEMORY_CUDA ? VRAM_SEG : DRAM_SEG;
    log_.log(TCPX_LOG_ERROR, "memory of " + quoted(agent) + ": " +
                                 text_of(type, {input.addr, input.devId}, input.len) +
                                 ", but its description says " +
                                 text_of(described, place, region.length));
    return NIXL_ERR_MISMATCH;
  }
  out = new RemoteMD(region, input.addr);
  return NIXL_SUCCESS;
}

nixl_status_t TcpxEngine::unloadMD(nixlBackendMD* meta) {
  delete meta;
  return NIXL_SUCCESS;
}

// ---- connections ---------------------------------------------------------------------------

nixl_status_t TcpxEngine::getConnInfo(std::string& out) const {
  out = conn_info_;
  return NIXL_SUCCESS;
}

nixl_status_t TcpxEngine::loadRemoteConnInfo(const std::string& agent, const std::string& info) {
  tcpx_code code = connections_->load(agent, info);
  return code == TCPX_OK ? NIXL_SUCCESS : failed(code, "connection info of " + quoted(agent));
}

// The user asks for the connection now, so waiting is what is wanted; it ends at connect_timeout.
nixl_status_t TcpxEngine::connect(const std::string& agent) {
  if (agent == localAgent) return NIXL_SUCCESS;  // every agent is asked; few ever need it
  ConnectionPtr connection = connections_->find(agent);
  if (connection == nullptr) return NIXL_ERR_NOT_FOUND;
  tcpx_code code = tcpx_peer_wait(engine_.raw(), connection->peer, -1);
  if (code == TCPX_OK || code == TCPX_IN_PROGRESS) return NIXL_SUCCESS;  // or goes on connecting
  return failed(code, "connecting to " + quoted(agent));
}

nixl_status_t TcpxEngine::disconnect(const std::string& agent) {
  connections_->drop(agent);
  return NIXL_SUCCESS;
}

// ---- transfers -----------------------------------------------------------------------------

nixl_status_t TcpxEngine::prepXfer(const nixl_xfer_op_t& op, const nixl_meta_dlist_t& local,
                                   const nixl_meta_dlist_t& remote, const std::string& agent,
                                   nixlBackendReqH*& handle, const nixl_opt_b_args_t*) const {
  ConnectionPtr connection = connections_->find(agent);
  if (connection == nullptr) return NIXL_ERR_NOT_FOUND;
  Pieces pieces;
  if (!make_pieces(local, remote, &pieces)) return NIXL_ERR_INVALID_PARAM;
  tcpx_transfer* transfer = nullptr;
  tcpx_code code =
      tcpx_prepare(engine_.raw(), connection->peer, op == NIXL_WRITE ? TCPX_WRITE : TCPX_READ,
                   pieces.local.data(), pieces.remote.data(), pieces.local.size(), &transfer);
  if (code == TCPX_OK)
    handle = new Request(std::move(connection), tcpx::Transfer(transfer), log_);
  else if (is_peer_lost(code))  // NIXL takes this answer from a post only
    handle = new Request(std::move(connection), code, log_);
  else
    return failed(code, "preparing a transfer with " + quoted(agent));
  return NIXL_SUCCESS;
}

// Everything comes from the handle: the lists' metadata may have been freed by now.
nixl_status_t TcpxEngine::postXfer(const nixl_xfer_op_t&, const nixl_meta_dlist_t&,
                                   const nixl_meta_dlist_t&, const std::string& agent,
                                   nixlBackendReqH*& handle, const nixl_opt_b_args_t* args) const {
  auto* request = static_cast<Request*>(handle);
  if (request == nullptr) return NIXL_ERR_INVALID_PARAM;
  if (!connections_->is_current(request->connection())) {
    log_.log(TCPX_LOG_ERROR, "the request was made before " + quoted(agent) +
                                 " was forgotten; load it again and make a new one");
    return NIXL_ERR_NOT_FOUND;
  }
  tcpx_code code = args != nullptr && args->hasNotif
                       ? request->post(encode_notification(localAgent, args->notifMsg))
                       : request->post();
  if (code == TCPX_OK) return NIXL_IN_PROG;
  // Ended from this side: the agent was invalidated.
  return code == TCPX_CANCELLED ? NIXL_ERR_NOT_FOUND : to_nixl(code);
}

nixl_status_t TcpxEngine::checkXfer(nixlBackendReqH* handle) const {
  auto* request = static_cast<Request*>(handle);
  if (request == nullptr) return NIXL_ERR_INVALID_PARAM;
  if (!request->posted()) return NIXL_ERR_NOT_POSTED;
  tcpx_code code = request->check(*connections_);
  // NIXL would drop the metadata of whoever has the agent's name now.
  if (is_peer_lost(code) && connections_->replaced(request->connection())) return NIXL_ERR_CANCELED;
  return to_nixl(code);
}

// Always succeeds: NIXL ignores a second refusal and frees what the request was made from.
nixl_status_t TcpxEngine::releaseReqH(nixlBackendReqH* handle) const {
  delete handle;
  return NIXL_SUCCESS;
}

nixl_status_t TcpxEngine::estimateXferCost(const nixl_xfer_op_t&, const nixl_meta_dlist_t& local,
                                           const nixl_meta_dlist_t&, const std::string& agent,
                                           nixlBackendReqH* const&,
                                           std::chrono::microseconds& duration,
                                           std::chrono::microseconds& margin, nixl_cost_t& method,
                                           const nixl_opt_args_t*) const {
  ConnectionPtr connection = connections_->find(agent);
  if (connection == nullptr) return NIXL_ERR_NOT_FOUND;
  uint64_t bytes = 0;
  for (const nixlMetaDesc& piece : local) bytes += piece.len;
  Rates::Estimate estimate = connection->rates.estimate(bytes);
  duration = whole_us(estimate.duration_us);
  margin = whole_us(estimate.margin_us);
  method = nixl_cost_t::ANALYTICAL_BACKEND;
  return NIXL_SUCCESS;
}

// ---- notifications -------------------------------------------------------------------------

nixl_status_t TcpxEngine::getNotifs(notif_list_t& out) {
  inbox_->take_all(&out);
  return NIXL_SUCCESS;
}

nixl_status_t TcpxEngine::genNotif(const std::string& agent, const std::string& message) const {
  if (agent == localAgent) {
    inbox_->add_own(agent, message);
    return NIXL_SUCCESS;
  }
  ConnectionPtr connection = connections_->find(agent);
  if (connection == nullptr) return NIXL_ERR_NOT_FOUND;
  std::string bytes = encode_notification(localAgent, message);
  // Not to wait is what NIXL's users expect; the engine delivers it, also when the peer is still
  // being connected to.
  tcpx_code code = tcpx_notify(engine_.raw(), connection->peer, bytes.data(), bytes.size(), 0);
  if (code == TCPX_OK || code == TCPX_DEADLINE) return NIXL_SUCCESS;
  if (code == TCPX_LIMIT) {  // the caller may try again and again: no line for each
    log_.log(TCPX_LOG_DEBUG, "notifying " + quoted(agent) + ": " + tcpx_last_error());
    return to_nixl(code);
  }
  return failed(code, "notifying " + quoted(agent));
}

}  // namespace tcpx_nixl
