#include "request.h"

#include "status.h"

namespace tcpx_nixl {

namespace {

// Between the end of an agent's registrations and that of its sessions: it may wait half a second
// for confirmations of its last notifications.
constexpr std::chrono::milliseconds kLeavesWithin{600};
// How long a post waits for the peer's answers to what an earlier one, which failed, left on its
// way. A peer that lives gives them at once.
constexpr int64_t kAnswersWithinMs = 200;

}  // namespace

// One that ended unobserved still gets its receipt; one in progress is cancelled by transfer_.
Request::~Request() try {
  if (posted_ && !made_here_.is_inherited()) (void)poll();
} catch (...) {  // no memory for the receipt
}

tcpx_code Request::post() {
  return post(tcpx_post_args{});
}

tcpx_code Request::post(std::string_view notification) {
  tcpx_post_args args{};
  args.has_notify = 1;
  args.notify = notification.data();
  args.notify_length = notification.size();
  return post(args);
}

tcpx_code Request::post(const tcpx_post_args& args) {
  posted_ = true;
  if (!transfer_) return state_;
  tcpx_code code = tcpx_post(transfer_.raw(), &args);
  if (code == TCPX_BUSY && state_ != TCPX_IN_PROGRESS &&
      tcpx_cancel(transfer_.raw(), kAnswersWithinMs) == TCPX_OK)
    code = tcpx_post(transfer_.raw(), &args);
  if (code == TCPX_BUSY) return code;  // the post before goes on, or what it left behind does
  state_ = code == TCPX_OK ? TCPX_IN_PROGRESS : code;
  decided_ = true;
  if (code != TCPX_OK) report(code);
  return code;
}

tcpx_code Request::check(const Connections& connections) {
  tcpx_code code = poll();
  return decided_ ? code : memory_gone(connections.state_of(*connection_));
}

// An agent that ends takes its memory back first. Whether that is what we met shows soon; until
// then nothing is said, because a lost peer and a mistake of the caller are handled differently.
tcpx_code Request::memory_gone(tcpx_code session) {
  bool alive = session == TCPX_OK;
  if (alive && std::chrono::steady_clock::now() - gone_since_ < kLeavesWithin)
    return TCPX_IN_PROGRESS;
  decided_ = true;
  if (is_peer_lost(session)) state_ = session;
  return state_;
}

tcpx_code Request::poll() {
  if (state_ != TCPX_IN_PROGRESS) return state_;
  tcpx_code code = tcpx_poll(transfer_.raw());
  if (code != TCPX_IN_PROGRESS) ended(code);
  return code;
}

void Request::ended(tcpx_code code) {
  state_ = code;
  decided_ = code != TCPX_STALE_REGION;
  if (!decided_) gone_since_ = std::chrono::steady_clock::now();
  if (code != TCPX_OK) report(code);
  if (code == TCPX_OK && connection_->rates.wants_another()) {
    tcpx_receipt receipt = transfer_.receipt();
    connection_->rates.add(receipt.bytes, receipt.total_us);
  }
  if (log_.enabled(TCPX_LOG_DEBUG))
    log_.log(TCPX_LOG_DEBUG,
             "transfer with " + quoted(connection_->agent) + ": " + transfer_.receipt_json());
}

void Request::report(tcpx_code code) const {
  tcpx_log_level level = code == TCPX_CANCELLED ? TCPX_LOG_INFO : TCPX_LOG_ERROR;
  // A peer with thousands of requests dies once.
  if (is_peer_lost(code) && connection_->loss_reported.exchange(true)) level = TCPX_LOG_DEBUG;
  log_.log(level, "transfer with " + quoted(connection_->agent) +
                      " failed: " + tcpx_code_name(code) + ": " + tcpx_last_error());
}

}  // namespace tcpx_nixl
