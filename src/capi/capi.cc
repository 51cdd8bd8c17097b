// The C ABI: arguments in, Status out. No exception gets past it: every function that may meet one
// runs in guarded().
#include <tcpx/tcpx.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <forward_list>
#include <new>

#include "base/caught.h"
#include "base/forked.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/text.h"
#include "base/version.h"
#include "capi/growing.h"
#include "capi/handles.h"
#include "engine/engine.h"
#include "engine/notice_queue.h"
#include "engine/report.h"
#include "gpu/detect_place.h"

using tcpx::Nanos;
using tcpx::Status;
using tcpx::strf;

struct tcpx_engine {
  std::unique_ptr<tcpx::EngineCore> engine;
  tcpx::MadeHere made_here;
  tcpx_engine* next_inherited = nullptr;
};
// What a tcpx_transfer* stands for.
struct PreparedTransfer {
  std::shared_ptr<tcpx::TransferState> transfer;
  tcpx::MadeHere made_here;
  PreparedTransfer* next_inherited = nullptr;
  Nanos default_deadline;  // copied: the handle may outlive the engine
  uint64_t max_notify_bytes;
  // What tcpx_transfer_error has told since the last post: what one thread was given stays when
  // another is told something else.
  tcpx::Mutex errors_mu;
  std::forward_list<std::string> errors TCPX_GUARDED_BY(errors_mu);
};

namespace {

// Plain bytes: a string would have a destructor, and where memory is out glibc ends the process
// rather than not run one at a thread's end.
thread_local char last_error[1024];
thread_local tcpx_blast last_blast = TCPX_BLAST_NOTHING;

void set_last_error(const Status& status) {
  snprintf(last_error, sizeof last_error, "%s", status.text().c_str());
  last_blast = status.blast();
}

tcpx_code report(const Status& status) {
  if (status.ok() || status.code() == TCPX_IN_PROGRESS) return status.code();
  set_last_error(status);
  return status.code();
}

// Runs f, which returns a Status or a code, and turns everything it can end with into a code.
template <class F>
tcpx_code guarded(F&& f) noexcept {
  try {
    if constexpr (std::is_same_v<decltype(f()), tcpx_code>)
      return f();
    else
      return report(f());
  } catch (...) {
    Status status = tcpx::caught(TCPX_BLAST_NOTHING);
    set_last_error(status);
    return status.code();
  }
}

tcpx_code bad(const char* text) noexcept {
  return guarded([&] { return tcpx::bad_call(TCPX_INVALID_ARGUMENT, text); });
}

// Of a handle that fork() has copied into this process.
tcpx_code inherited() noexcept {
  return guarded([] {
    return tcpx::bad_call(TCPX_UNSUPPORTED,
                          "this handle was made before fork() and works in the parent alone; the "
                          "child needs an engine of its own");
  });
}

// It stays as it is, with locks that threads of the parent may hold; and where it can be found, so
// that no leak checker takes it for lost.
template <class Handle>
void leave_inherited(Handle* handle) {
  static std::atomic<Handle*> first{nullptr};
  handle->next_inherited = first.load();
  while (!first.compare_exchange_weak(handle->next_inherited, handle)) {
  }
}

Nanos deadline_of(int64_t timeout_ms, Nanos fallback) {
  Nanos now = tcpx::now_ns();
  if (timeout_ms < 0) return tcpx::deadline_after(now, fallback);
  if (timeout_ms > tcpx::kNever / tcpx::kMilli) return tcpx::kNever;
  return tcpx::deadline_after(now, timeout_ms * tcpx::kMilli);
}

Nanos deadline_of(int64_t timeout_ms, tcpx_engine* engine) {
  return deadline_of(timeout_ms, engine->engine->shared().options.deadline);
}

Status copy_out(const void* bytes, size_t size, void* buffer, size_t* length) {
  size_t room = buffer == nullptr ? 0 : *length;
  *length = size;
  if (size > room) return tcpx::bad_call(TCPX_BUFFER_TOO_SMALL, strf("{} bytes are needed", size));
  if (size > 0) memcpy(buffer, bytes, size);
  return {};
}

Status place_of(const tcpx_register_args& args, tcpx::Place* out) {
  bool host = args.memory == TCPX_MEMORY_HOST;
  if (!host && args.memory != TCPX_MEMORY_CUDA)
    return tcpx::bad_call(TCPX_INVALID_ARGUMENT,
                          "memory must be TCPX_MEMORY_HOST or TCPX_MEMORY_CUDA");
  if (args.device > (host ? 0u : uint32_t{UINT16_MAX}))
    return tcpx::bad_call(TCPX_INVALID_ARGUMENT,
                          "device must be 0 for host memory, and a device's number otherwise");
  *out = {host ? tcpx::Place::Kind::kHost : tcpx::Place::Kind::kCuda,
          static_cast<uint16_t>(args.device)};
  return {};
}

// As of who does not say where the memory lies.
tcpx_code register_detected(tcpx_engine* engine, void* address, uint64_t length,
                            tcpx_register_args args, tcpx_region* region) {
  tcpx::Place place;
  tcpx_code code = guarded([&] { return tcpx::gpu::detect_place(address, length, &place); });
  args.memory = static_cast<uint32_t>(place.kind);
  args.device = place.device;
  return code == TCPX_OK ? tcpx_register_as(engine, address, length, &args, region) : code;
}

Status too_long(size_t length, uint64_t limit) {
  return tcpx::bad_call(TCPX_LIMIT,
                        strf("notification of {} bytes; max_notify_bytes is {}", length, limit));
}

Status take_notice(const tcpx_post_args& args, uint64_t limit, std::shared_ptr<tcpx::Notice>* out) {
  if (args.notify == nullptr && args.notify_length > 0)
    return tcpx::bad_call(TCPX_INVALID_ARGUMENT,
                          "notify must not be null when notify_length is not 0");
  if (args.notify_length > limit) return too_long(args.notify_length, limit);
  *out = std::make_shared<tcpx::Notice>();
  auto* bytes = static_cast<const uint8_t*>(args.notify);
  (*out)->bytes.assign(bytes, bytes + args.notify_length);
  return {};
}

// Of all engines: a transfer may outlive its own. Never destroyed: applications release at exit,
// too. The first call may be one without memory.
tcpx::Handles<PreparedTransfer>& transfers() {
  using All = tcpx::Handles<PreparedTransfer>;
  alignas(All) static std::byte place[sizeof(All)];
  static All& all = *new (place) All;
  return all;
}
uint64_t number_of(const tcpx_transfer* handle) {
  return reinterpret_cast<uintptr_t>(handle);
}
// For the length of a call: a release in another thread waits for it.
tcpx::Handles<PreparedTransfer>::Use use(const tcpx_transfer* handle) {
  return transfers().use(number_of(handle));
}
tcpx_code no_transfer(const tcpx_transfer* handle) {
  return bad(handle == nullptr ? "transfer must not be null"
                               : "the transfer was released, or is none of tcpx_prepare");
}

tcpx::Transfers& of(const PreparedTransfer& transfer) {
  return transfer.transfer->peer->transfers();
}

tcpx_code transfer_code(const PreparedTransfer& transfer) {
  int code = transfer.transfer->code.load(std::memory_order_acquire);
  if (code == tcpx::kNotPosted) return bad("the transfer was never posted; call tcpx_post first");
  if (code != TCPX_OK && code != TCPX_IN_PROGRESS)
    return report(of(transfer).status_of(*transfer.transfer));
  return static_cast<tcpx_code>(code);
}

}  // namespace

extern "C" {

// ---- library

const char* tcpx_version(void) {
  return tcpx::kVersion;
}
const char* tcpx_code_name(tcpx_code code) {
  return tcpx::code_name(code);
}
const char* tcpx_last_error(void) {
  return last_error;
}
tcpx_blast tcpx_last_blast(void) {
  return last_blast;
}

tcpx_code tcpx_option_get(size_t index, tcpx_option_info* info) {
  if (info == nullptr) return bad("info must not be null");
  return guarded([&]() -> Status {
    auto table = tcpx::option_table();
    if (index >= table.size())
      return tcpx::bad_call(TCPX_NOT_FOUND, strf("the option table has {} rows", table.size()));
    const tcpx::OptionRow& row = table[index];
    *info = {row.name, row.unit, row.default_text, row.range, row.help, row.aliases};
    return {};
  });
}

// ---- engine

tcpx_code tcpx_engine_create(const tcpx_option* options, size_t count, tcpx_log_fn log,
                             void* log_user, tcpx_engine** out) {
  tcpx::watch_forks();
  return guarded([&]() -> Status {
    if (out == nullptr || (options == nullptr && count > 0))
      return tcpx::bad_call(TCPX_INVALID_ARGUMENT, "engine and options must not be null");
    tcpx::NameValues values;
    for (size_t i = 0; i < count; ++i) {
      if (options[i].name == nullptr || options[i].value == nullptr)
        return tcpx::bad_call(TCPX_INVALID_ARGUMENT, strf("option {} has no name or no value", i));
      values.emplace_back(options[i].name, options[i].value);
    }
    tcpx::Config config;
    if (Status status = tcpx::load_config(values, environ, &config); !status) return status;
    auto handle = std::make_unique<tcpx_engine>();
    tcpx::Log logger(log, log_user, config.options.log_level);
    Status status = tcpx::EngineCore::create(std::move(config), logger, nullptr, &handle->engine);
    if (status) *out = handle.release();
    return status;
  });
}

void tcpx_engine_destroy(tcpx_engine* engine) {
  if (engine != nullptr && engine->made_here.is_inherited()) return leave_inherited(engine);
  delete engine;
}

tcpx_code tcpx_connection_info(tcpx_engine* engine, void* buffer, size_t* length) {
  if (engine == nullptr || length == nullptr) return bad("engine and length must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] {
    auto& info = engine->engine->connection_info();
    return copy_out(info.data(), info.size(), buffer, length);
  });
}

tcpx_code tcpx_config_text(tcpx_engine* engine, char* buffer, size_t* length) {
  if (engine == nullptr || length == nullptr) return bad("engine and length must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] {
    std::string text = engine->engine->config().to_text();
    return copy_out(text.data(), text.size(), buffer, length);
  });
}

tcpx_code tcpx_counters_json(tcpx_engine* engine, char* buffer, size_t* length) {
  if (engine == nullptr || length == nullptr) return bad("engine and length must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] {
    std::string text = engine->engine->counters_json();
    return copy_out(text.data(), text.size(), buffer, length);
  });
}

// ---- peers

tcpx_code tcpx_connect(tcpx_engine* engine, const void* info, size_t length, tcpx_peer* peer) {
  if (engine == nullptr || info == nullptr || peer == nullptr)
    return bad("engine, info and peer must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] {
    return engine->engine->dialler().connect({static_cast<const uint8_t*>(info), length}, peer);
  });
}

tcpx_code tcpx_connect_address(tcpx_engine* engine, const char* address, tcpx_peer* peer) {
  if (engine == nullptr || address == nullptr || peer == nullptr)
    return bad("engine, address and peer must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] { return engine->engine->dialler().connect_address(address, peer); });
}

tcpx_code tcpx_peer_wait(tcpx_engine* engine, tcpx_peer id, int64_t timeout_ms) {
  if (engine == nullptr) return bad("engine must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&]() -> Status {
    std::shared_ptr<tcpx::Peer> peer;
    if (Status status = engine->engine->peers().find(id, &peer); !status) return status;
    return peer->wait_connected(deadline_of(timeout_ms, engine));
  });
}

tcpx_code tcpx_accept(tcpx_engine* engine, int64_t timeout_ms, tcpx_peer* peer) {
  if (engine == nullptr || peer == nullptr) return bad("engine and peer must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded(
      [&] { return engine->engine->peers().accept(deadline_of(timeout_ms, engine), peer); });
}

tcpx_code tcpx_disconnect(tcpx_engine* engine, tcpx_peer peer) {
  if (engine == nullptr) return bad("engine must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] { return engine->engine->disconnect(peer); });
}

tcpx_code tcpx_peer_get(tcpx_engine* engine, tcpx_peer id, tcpx_peer_info* out) {
  if (engine == nullptr || out == nullptr) return bad("engine and info must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&]() -> Status {
    std::shared_ptr<tcpx::Peer> peer;
    if (Status status = engine->engine->peers().find(id, &peer); !status) return status;
    tcpx_peer_info info{};
    info.state = peer->wait_connected(0).code();
    info.lanes = peer->live_lanes();
    auto text = [](const std::string& from, char* to, size_t size) {
      snprintf(to, size, "%s", from.c_str());
    };
    text(tcpx::path_of(*peer), info.path, sizeof info.path);
    text(tcpx::interfaces_of(*peer), info.interfaces, sizeof info.interfaces);
    if (peer->is_established()) {
      info.generation = peer->generation();
      text(tcpx::to_hex(peer->identity().uid), info.engine_id, sizeof info.engine_id);
      text(peer->name(), info.name, sizeof info.name);
    }
    return tcpx::give_struct("tcpx_peer_info", info, tcpx::kPeerInfoV1, out);
  });
}

// ---- memory

tcpx_code tcpx_register(tcpx_engine* engine, void* address, uint64_t length, uint32_t access,
                        tcpx_region* region) {
  tcpx_register_args args{};
  args.access = access;
  return register_detected(engine, address, length, args, region);
}

tcpx_code tcpx_register_for(tcpx_engine* engine, void* address, uint64_t length, uint32_t access,
                            const tcpx_peer* peers, size_t count, tcpx_region* region) {
  tcpx_register_args args{};
  args.access = access;
  args.for_peers = 1;
  args.peers = peers;
  args.peer_count = count;
  return register_detected(engine, address, length, args, region);
}

tcpx_code tcpx_register_as(tcpx_engine* engine, void* address, uint64_t length,
                           const tcpx_register_args* given, tcpx_region* region) {
  if (engine == nullptr || region == nullptr || given == nullptr)
    return bad("engine, args and region must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&]() -> Status {
    tcpx_register_args args;
    if (Status status =
            tcpx::take_struct("tcpx_register_args", given, tcpx::kRegisterArgsV1, &args);
        !status)
      return status;
    tcpx::RegionView memory{static_cast<uint8_t*>(address), length, args.access};
    if (Status status = place_of(args, &memory.place); !status) return status;
    if (args.for_peers == 0) return engine->engine->regions().register_memory(memory, region);
    if (args.peers == nullptr && args.peer_count > 0)
      return tcpx::bad_call(TCPX_INVALID_ARGUMENT,
                            "peers must not be null when their count is not 0");
    return engine->engine->regions().register_for(memory, {args.peers, args.peer_count}, region);
  });
}

tcpx_code tcpx_grant(tcpx_engine* engine, tcpx_region region, tcpx_peer peer) {
  if (engine == nullptr) return bad("engine must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] { return engine->engine->regions().grant(region, peer); });
}

tcpx_code tcpx_revoke_grant(tcpx_engine* engine, tcpx_region region, tcpx_peer peer) {
  if (engine == nullptr) return bad("engine must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] { return engine->engine->regions().revoke_grant(region, peer); });
}

tcpx_code tcpx_deregister(tcpx_engine* engine, tcpx_region region) {
  if (engine == nullptr) return bad("engine must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] { return engine->engine->regions().deregister(region); });
}

tcpx_code tcpx_suspend(tcpx_engine* engine, tcpx_region region) {
  if (engine == nullptr) return bad("engine must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] { return engine->engine->regions().suspend(region); });
}

tcpx_code tcpx_resume(tcpx_engine* engine, tcpx_region region) {
  if (engine == nullptr) return bad("engine must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] { return engine->engine->regions().resume(region); });
}

tcpx_code tcpx_region_export(tcpx_engine* engine, tcpx_region region, void* buffer,
                             size_t* length) {
  if (engine == nullptr || length == nullptr) return bad("engine and length must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&]() -> Status {
    tcpx::wire::RegionDescription description;
    if (Status status = engine->engine->regions().describe(region, &description); !status)
      return status;
    auto bytes = tcpx::wire::encode_region(description);
    return copy_out(bytes.data(), bytes.size(), buffer, length);
  });
}

tcpx_code tcpx_region_import(const void* bytes, size_t length, tcpx_remote_region* region) {
  if (bytes == nullptr || region == nullptr) return bad("bytes and region must not be null");
  return guarded([&]() -> Status {
    tcpx::wire::RegionDescription description;
    Status status =
        tcpx::wire::decode_region({static_cast<const uint8_t*>(bytes), length}, &description);
    if (!status) return status;
    *region = {};
    std::copy(description.uid.begin(), description.uid.end(), region->engine_id);
    region->id = description.id;
    region->length = description.length;
    region->access = description.access;
    region->memory = description.memory;
    region->device = description.device;
    region->chunk_bytes = description.chunk_bytes;
    return {};
  });
}

// ---- transfers

tcpx_code tcpx_prepare(tcpx_engine* engine, tcpx_peer peer, tcpx_op op,
                       const tcpx_local_piece* local, const tcpx_remote_piece* remote,
                       size_t pieces, tcpx_transfer** out) {
  if (engine == nullptr || local == nullptr || remote == nullptr || out == nullptr || pieces == 0)
    return bad(
        "a transfer needs an engine and two lists of the same length with at least one "
        "piece");
  if (engine->made_here.is_inherited()) return inherited();
  int op_number;  // a C caller may pass any int; reading it as the enum would be undefined
  memcpy(&op_number, &op, sizeof op_number);
  if (op_number != TCPX_WRITE && op_number != TCPX_READ)
    return bad("op must be TCPX_WRITE or TCPX_READ");
  return guarded([&]() -> Status {
    auto handle = std::make_unique<PreparedTransfer>();
    handle->default_deadline = engine->engine->shared().options.deadline;
    handle->max_notify_bytes = engine->engine->shared().options.max_notify_bytes;
    Status status =
        engine->engine->prepare(peer, op, {local, pieces}, {remote, pieces}, &handle->transfer);
    if (status)
      *out = reinterpret_cast<tcpx_transfer*>(uintptr_t{transfers().add(std::move(handle))});
    return status;
  });
}

tcpx_code tcpx_post(tcpx_transfer* handle, const tcpx_post_args* given) {
  auto transfer = use(handle);
  if (!transfer) return no_transfer(handle);
  if (transfer->made_here.is_inherited()) return inherited();
  return guarded([&]() -> Status {
    tcpx_post_args args{};
    if (given != nullptr)
      if (Status status = tcpx::take_struct("tcpx_post_args", given, tcpx::kPostArgsV1, &args);
          !status)
        return status;
    std::shared_ptr<tcpx::Notice> notice;
    if (args.has_notify != 0)
      if (Status status = take_notice(args, transfer->max_notify_bytes, &notice); !status)
        return status;
    // As of any field of a struct: zero is the default.
    Nanos deadline =
        deadline_of(args.deadline_ms > 0 ? args.deadline_ms : -1, transfer->default_deadline);
    {
      tcpx::MutexLock lock(transfer->errors_mu);
      transfer->errors.clear();
    }
    return of(*transfer).post(transfer->transfer, std::move(notice), deadline);
  });
}

tcpx_code tcpx_poll(tcpx_transfer* handle) {
  auto transfer = use(handle);
  if (!transfer) return no_transfer(handle);
  if (transfer->made_here.is_inherited()) return inherited();
  return guarded([&] {
    if (transfer->transfer->in_progress()) of(*transfer).poll(*transfer->transfer);
    return transfer_code(*transfer);
  });
}

tcpx_code tcpx_wait(tcpx_transfer* handle, int64_t timeout_ms) {
  auto transfer = use(handle);
  if (!transfer) return no_transfer(handle);
  if (transfer->made_here.is_inherited()) return inherited();
  return guarded([&] {
    if (transfer->transfer->in_progress())
      of(*transfer).wait(*transfer->transfer, deadline_of(timeout_ms, transfer->default_deadline));
    return transfer_code(*transfer);
  });
}

tcpx_code tcpx_cancel(tcpx_transfer* handle, int64_t timeout_ms) {
  auto transfer = use(handle);
  if (!transfer) return no_transfer(handle);
  if (transfer->made_here.is_inherited()) return inherited();
  int code = transfer->transfer->code.load(std::memory_order_acquire);
  if (code == tcpx::kNotPosted || code == TCPX_OK) return TCPX_OK;
  return guarded([&] {
    return of(*transfer).cancel(transfer->transfer,
                                deadline_of(timeout_ms, transfer->default_deadline));
  });
}

void tcpx_release(tcpx_transfer* handle) {
  if (handle == nullptr) return;
  auto transfer = transfers().retire(number_of(handle));
  if (!transfer) return;  // released before
  if (transfer->made_here.is_inherited()) return leave_inherited(transfer.leave_for_ever());
  // Whoever is inside a call leaves it when the transfer has ended.
  if (transfer.in_use() || transfer->transfer->in_progress())
    of(*transfer).release(transfer->transfer);
}

tcpx_code tcpx_receipt_get(tcpx_transfer* handle, tcpx_receipt* receipt) {
  auto transfer = use(handle);
  if (!transfer) return no_transfer(handle);
  if (receipt == nullptr) return bad("receipt must not be null");
  if (transfer->made_here.is_inherited()) return inherited();
  return guarded([&] {
    return tcpx::give_struct("tcpx_receipt", tcpx::receipt_of(*transfer->transfer),
                             tcpx::kReceiptV1, receipt);
  });
}

tcpx_code tcpx_receipt_json(tcpx_transfer* handle, char* buffer, size_t* length) {
  auto transfer = use(handle);
  if (!transfer) return no_transfer(handle);
  if (length == nullptr) return bad("length must not be null");
  if (transfer->made_here.is_inherited()) return inherited();
  return guarded([&] {
    std::string text = tcpx::receipt_json_of(*transfer->transfer);
    return copy_out(text.data(), text.size(), buffer, length);
  });
}

const char* tcpx_transfer_error(tcpx_transfer* handle) {
  auto transfer = use(handle);
  if (!transfer) return "";
  if (transfer->made_here.is_inherited()) return "";
  const char* told = "";
  tcpx::quietly([&] {
    std::string text = of(*transfer).status_of(*transfer->transfer).text();
    tcpx::MutexLock lock(transfer->errors_mu);
    auto& errors = transfer->errors;
    if (errors.empty() || errors.front() != text) errors.push_front(std::move(text));
    told = errors.front().c_str();
  });
  return told;
}

// ---- notifications

tcpx_code tcpx_notify(tcpx_engine* engine, tcpx_peer id, const void* bytes, size_t length,
                      int64_t timeout_ms) {
  if (engine == nullptr || (bytes == nullptr && length > 0))
    return bad("engine and bytes must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&]() -> Status {
    uint64_t limit = engine->engine->shared().options.max_notify_bytes;
    if (length > limit) return too_long(length, limit);
    std::shared_ptr<tcpx::Peer> peer;
    if (Status status = engine->engine->peers().find(id, &peer); !status) return status;
    auto notice = std::make_shared<tcpx::Notice>();
    auto* data = static_cast<const uint8_t*>(bytes);
    notice->bytes.assign(data, data + length);
    return peer->notices().notify(std::move(notice), deadline_of(timeout_ms, engine));
  });
}

tcpx_code tcpx_next_notification(tcpx_engine* engine, int64_t timeout_ms, tcpx_peer* peer,
                                 void* buffer, size_t* length) {
  if (engine == nullptr || length == nullptr || (buffer == nullptr && *length > 0))
    return bad("engine, buffer and length must not be null");
  if (engine->made_here.is_inherited()) return inherited();
  return guarded([&] {
    tcpx::NoticeQueue& inbox = *engine->engine->shared().inbox;
    if (timeout_ms == 0 && inbox.empty()) engine->engine->poll();
    return inbox.pop(deadline_of(timeout_ms, engine), peer, buffer, length);
  });
}

}  // extern "C"
