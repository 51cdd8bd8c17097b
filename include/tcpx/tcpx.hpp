// tcpx.hpp - the C++ face of tcpx.h. Header-only over the C ABI, so a program built with one
// compiler keeps working with a library built by another. Semantics are those of tcpx.h.
#ifndef TCPX_TCPX_HPP
#define TCPX_TCPX_HPP

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tcpx/tcpx.h>

namespace tcpx {

// How a call ended: a stable code, what the failure destroyed, and its text.
class [[nodiscard]] Result {
 public:
  Result() = default;
  Result(tcpx_code code) : code_(code) {  // NOLINT: implicit by design
    if (code_ != TCPX_OK && code_ != TCPX_IN_PROGRESS) {
      text_ = tcpx_last_error();
      blast_ = tcpx_last_blast();
    }
  }
  bool ok() const { return code_ == TCPX_OK; }
  explicit operator bool() const { return ok(); }
  bool in_progress() const { return code_ == TCPX_IN_PROGRESS; }
  tcpx_code code() const { return code_; }
  tcpx_blast blast() const { return blast_; }
  const char* name() const { return tcpx_code_name(code_); }
  const std::string& text() const { return text_; }

 private:
  tcpx_code code_ = TCPX_OK;
  tcpx_blast blast_ = TCPX_BLAST_NOTHING;
  std::string text_;
};

using Bytes = std::vector<uint8_t>;
using Millis = std::chrono::milliseconds;
inline constexpr Millis kDefaultDeadline{-1};

struct Options : std::vector<std::pair<std::string, std::string>> {
  using vector::vector;
};

struct Notification {
  tcpx_peer peer = 0;
  Bytes bytes;
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

namespace detail {
// Calls f(buffer, &length) until the buffer is large enough.
template <class Buffer, class F>
Result fill(Buffer& out, F&& f) {
  size_t length = out.size();
  tcpx_code code;
  while ((code = f(out.data(), &length)) == TCPX_BUFFER_TOO_SMALL) out.resize(length);
  if (code == TCPX_OK) out.resize(length);
  return code;
}
}  // namespace detail

// A READ or WRITE. Move-only; the destructor releases (and cancels what is in progress).
class Transfer {
 public:
  Transfer() = default;
  explicit Transfer(tcpx_transfer* raw) : raw_(raw) {}

  Result post() { return tcpx_post(raw_.get(), nullptr); }
  Result post(Millis deadline) {
    tcpx_post_args args{};
    args.struct_size = sizeof args;
    args.deadline_ms = deadline.count();
    return tcpx_post(raw_.get(), &args);
  }
  Result post_notify(std::string_view message, Millis deadline = kDefaultDeadline) {
    tcpx_post_args args{};
    args.struct_size = sizeof args;
    args.notify = message.data();
    args.notify_length = message.size();
    args.has_notify = 1;
    args.deadline_ms = deadline.count();
    return tcpx_post(raw_.get(), &args);
  }
  Result poll() { return tcpx_poll(raw_.get()); }
  Result wait(Millis timeout = kDefaultDeadline) { return tcpx_wait(raw_.get(), timeout.count()); }
  Result cancel(Millis timeout = kDefaultDeadline) {
    return tcpx_cancel(raw_.get(), timeout.count());
  }
  void release() { raw_.reset(); }
  tcpx_receipt receipt() const {
    tcpx_receipt r{};
    r.struct_size = sizeof r;
    tcpx_receipt_get(raw_.get(), &r);
    return r;
  }
  std::string receipt_json() const {
    std::string text;
    (void)detail::fill(text,
                       [&](char* p, size_t* n) { return tcpx_receipt_json(raw_.get(), p, n); });
    return text;
  }
  std::string error() const { return tcpx_transfer_error(raw_.get()); }
  tcpx_transfer* raw() const { return raw_.get(); }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  struct Release {
    void operator()(tcpx_transfer* t) const { tcpx_release(t); }
  };
  std::unique_ptr<tcpx_transfer, Release> raw_;
};

// An engine. Move-only; the destructor destroys it.
class Engine {
 public:
  using Log = std::function<void(tcpx_log_level, const char*)>;

  Engine() = default;
  static Result create(const Options& options, Engine* out, Log log = {}) {
    std::vector<tcpx_option> rows;
    for (auto& [name, value] : options) rows.push_back({name.c_str(), value.c_str()});
    Engine engine;
    if (log) engine.log_ = std::make_unique<Log>(std::move(log));
    tcpx_engine* raw = nullptr;
    Result result = tcpx_engine_create(rows.data(), rows.size(), engine.log_ ? &forward : nullptr,
                                       engine.log_.get(), &raw);
    if (!result) return result;
    engine.raw_.reset(raw);
    *out = std::move(engine);
    return result;
  }
  void destroy() { raw_.reset(); }

  Bytes connection_info() const {
    Bytes info;
    (void)detail::fill(info, [&](void* p, size_t* n) { return tcpx_connection_info(raw(), p, n); });
    return info;
  }
  std::string config_text() const {
    std::string text;
    (void)detail::fill(text, [&](char* p, size_t* n) { return tcpx_config_text(raw(), p, n); });
    return text;
  }
  std::string counters_json() const {
    std::string text;
    (void)detail::fill(text, [&](char* p, size_t* n) { return tcpx_counters_json(raw(), p, n); });
    return text;
  }

  Result connect(const Bytes& info, tcpx_peer* peer) {
    return tcpx_connect(raw(), info.data(), info.size(), peer);
  }
  Result connect_address(const std::string& address, tcpx_peer* peer) {
    return tcpx_connect_address(raw(), address.c_str(), peer);
  }
  Result peer_wait(tcpx_peer peer, Millis timeout = kDefaultDeadline) {
    return tcpx_peer_wait(raw(), peer, timeout.count());
  }
  Result accept(tcpx_peer* peer, Millis timeout = kDefaultDeadline) {
    return tcpx_accept(raw(), timeout.count(), peer);
  }
  Result disconnect(tcpx_peer peer) { return tcpx_disconnect(raw(), peer); }
  Result peer_info(tcpx_peer peer, tcpx_peer_info* info) {
    info->struct_size = sizeof *info;
    return tcpx_peer_get(raw(), peer, info);
  }

  Result register_memory(void* address, uint64_t length, uint32_t access, tcpx_region* region) {
    return tcpx_register(raw(), address, length, access, region);
  }
  Result register_as(void* address, uint64_t length, tcpx_register_args args, tcpx_region* region) {
    args.struct_size = sizeof args;
    return tcpx_register_as(raw(), address, length, &args, region);
  }
  Result register_for(void* address, uint64_t length, uint32_t access,
                      const std::vector<tcpx_peer>& peers, tcpx_region* region) {
    return tcpx_register_for(raw(), address, length, access, peers.data(), peers.size(), region);
  }
  Result grant(tcpx_region region, tcpx_peer peer) { return tcpx_grant(raw(), region, peer); }
  Result revoke_grant(tcpx_region region, tcpx_peer peer) {
    return tcpx_revoke_grant(raw(), region, peer);
  }
  Result deregister(tcpx_region region) { return tcpx_deregister(raw(), region); }
  Result suspend(tcpx_region region) { return tcpx_suspend(raw(), region); }
  Result resume(tcpx_region region) { return tcpx_resume(raw(), region); }
  Result export_region(tcpx_region region, Bytes* out) {
    return detail::fill(
        *out, [&](void* p, size_t* n) { return tcpx_region_export(raw(), region, p, n); });
  }
  static Result import_region(const Bytes& bytes, tcpx_remote_region* region) {
    return tcpx_region_import(bytes.data(), bytes.size(), region);
  }

  Result prepare(tcpx_peer peer, tcpx_op op, const std::vector<tcpx_local_piece>& local,
                 const std::vector<tcpx_remote_piece>& remote, Transfer* out) {
    if (local.size() != remote.size())
      return tcpx_prepare(raw(), peer, op, nullptr, nullptr, SIZE_MAX, nullptr);
    tcpx_transfer* transfer = nullptr;
    Result result =
        tcpx_prepare(raw(), peer, op, local.data(), remote.data(), local.size(), &transfer);
    if (result) *out = Transfer(transfer);
    return result;
  }

  Result notify(tcpx_peer peer, std::string_view bytes, Millis timeout = kDefaultDeadline) {
    return tcpx_notify(raw(), peer, bytes.data(), bytes.size(), timeout.count());
  }
  // TCPX_IN_PROGRESS if none arrived in time.
  Result next_notification(Notification* out, Millis timeout = Millis{0}) {
    out->bytes.resize(256);
    return detail::fill(out->bytes, [&](void* p, size_t* n) {
      return tcpx_next_notification(raw(), timeout.count(), &out->peer, p, n);
    });
  }

  tcpx_engine* raw() const { return raw_.get(); }
  explicit operator bool() const { return raw_ != nullptr; }

 private:
  static void forward(void* user, tcpx_log_level level, const char* line) {
    (*static_cast<Log*>(user))(level, line);
  }
  struct Destroy {
    void operator()(tcpx_engine* e) const { tcpx_engine_destroy(e); }
  };
  std::unique_ptr<Log> log_;  // outlives raw_: the engine logs until it is destroyed
  std::unique_ptr<tcpx_engine, Destroy> raw_;
};

}  // namespace tcpx
#endif  // TCPX_TCPX_HPP
