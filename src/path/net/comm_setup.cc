#include "path/net/comm_setup.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/caught.h"
#include "base/ids.h"
#include "base/text.h"
#include "path/net/connect_reaper.h"
#include "path/net/handle_check.h"
#include "path/net/plugin_log.h"

namespace tcpx::net {
namespace {

constexpr Nanos kPeersWord = kSecond;

}  // namespace

CommSetup::CommSetup(const NetCarrierSettings& settings, SendComm& send, ReceiveComm& receive)
    : settings_(settings),
      calls_(settings.plugin->calls()),
      send_(send),
      receive_(receive),
      request_bytes_(settings.request_bytes),
      proof_(settings) {}

// ---- the two ends talk ---------------------------------------------------------------------

void CommSetup::start(CarrierHost& host) {
  host_ = &host;
  started_ = now_ns();
  if (Status status = listen(); !status) fail({status}, true);
}

Status CommSetup::listen() {
  if (Status status = random_bytes(offer_.nonce); !status) return status;
  nccl::Result result = calls_.listen(settings_.device, offer_.handle.data(), &listen_comm_);
  if (result != nccl::kSuccess) return call_failed("listen", result);
  offer_.step = wire::NetStep::kOffer;
  offer_.version = static_cast<uint8_t>(calls_.version());
  offer_.request_bytes = settings_.request_bytes;
  offer_.plugin = settings_.plugin->name();
  say(offer_);
  return {};
}

void CommSetup::say(wire::NetStep step) {
  wire::NetSetup message;
  message.step = step;
  say(message);
}

void CommSetup::say(const wire::NetSetup& message) {
  std::array<uint8_t, wire::kNetSetupBytes> bytes;
  wire::encode(message, bytes);
  host_->send_message(bytes);
}

Status CommSetup::on_message(std::span<const uint8_t> bytes) {
  wire::NetSetup message;
  if (Status status = wire::decode(bytes, &message); !status) return status;
  if (has_failed()) return {};  // they crossed
  if (message.step == wire::NetStep::kFailed) {
    Status why = setup_error(with_warning("the peer: " + escaped(message.text)));
    if (is_ready()) return why;  // too late to go on without
    fail({why}, false);
    return {};
  }
  if (is_ready()) return lane_error(TCPX_PROTOCOL_ERROR, "net set-up goes on after its end");
  switch (message.step) {
    case wire::NetStep::kOffer:
      if (Status status = offer_received(message); !status) fail({status}, true);
      return {};
    case wire::NetStep::kReady: peer_ready_ = true; return {};
    case wire::NetStep::kBound:
      peer_bound_ = true;
      settle_if_bound();
      return {};
    default: return {};
  }
}

Status CommSetup::offer_received(const wire::NetSetup& offer) {
  if (peers_offer_) return setup_error("the peer made two offers for one lane");
  if (offer.plugin != settings_.plugin->name())
    return setup_error(strf("the plugins differ: {} here, {} at the peer", settings_.plugin->name(),
                            escaped(offer.plugin)));
  if (Status status = check_handle(offer.plugin, offer.handle); !status) return status;
  peers_offer_ = offer;
  request_bytes_ = std::min(request_bytes_, offer.request_bytes);
  return {};
}

// ---- step by step --------------------------------------------------------------------------

Status CommSetup::poll() {
  if (failure_.ok()) {
    failure_ = advance();
    if (failure_.ok() && now_ns() > settings_.setup_deadline) failure_ = late();
    failed_at_ = now_ns();
  }
  if (failure_.ok()) return {};
  // With our proof sent and our word that we are bound the peer may be up, and send beside the
  // stream: then there is no way back to the stream, only the end of the lane. If it is not, it
  // says so; its word may be behind what broke.
  if (proof_.is_shown() && bound_sent_)
    return now_ns() - failed_at_ > kPeersWord ? failure_ : Status();
  fail({failure_, meeting_broke_ || send_.broke() || receive_.broke()}, true);
  return {};
}

Status CommSetup::advance() {
  if (!peers_offer_) return {};
  if (!send_.is_open())
    if (Status status = try_connect(); !status) return status;
  if (!receive_.is_open())
    if (Status status = try_accept(); !status) return status;
  if (send_.is_open() && peer_ready_ && !proof_.is_shown())
    if (Status status = proof_.show(*peers_offer_, send_); !status) return status;
  if (send_.is_open())
    if (Status status = send_.poll([this](TxFrame*) { proof_.sent(); }); !status) return status;
  if (receive_.is_open() && !proof_.is_here())
    if (Status status = receive_.poll(proof_); !status) return status;
  if (proof_.is_here() && !bound_sent_) return check_proof();
  return {};
}

Status CommSetup::try_connect() {
  if (connecting_ == nullptr) connecting_ = std::make_unique<wire::NetHandle>(peers_offer_->handle);
  void* comm = nullptr;
  nccl::Result result = calls_.connect(settings_.device, connecting_->data(), &comm);
  if (comm != nullptr || result != nccl::kSuccess) connecting_.reset();
  if (result != nccl::kSuccess) return call_to_peer_failed("connect", result);
  if (comm != nullptr) send_.open(comm, request_bytes_);
  return {};
}

// With the receive for the proof posted, the peer may send.
Status CommSetup::try_accept() {
  void* comm = nullptr;
  nccl::DeviceHandle* device = &device_handle_;
  nccl::Result result = calls_.accept(listen_comm_, &comm, &device);
  if (result != nccl::kSuccess) return call_to_peer_failed("accept", result);
  if (comm == nullptr) return {};
  calls_.close_listen(listen_comm_);
  listen_comm_ = nullptr;
  if (Status status = receive_.open(comm, *device, request_bytes_); !status) return status;
  if (Status status = proof_.expect(receive_); !status) return status;
  say(wire::NetStep::kReady);
  return {};
}

Status CommSetup::check_proof() {
  bool right = false;
  if (Status status = proof_.check(offer_, &right); !status || !right) return status;
  say(wire::NetStep::kBound);
  bound_sent_ = true;
  settle_if_bound();
  return {};
}

// At once, not with the next poll: heads of payload frames may follow the peer's last message.
void CommSetup::settle_if_bound() {
  if (!bound_sent_ || !peer_bound_ || !goes_on()) return;
  state_ = State::kReady;
  host_->carrier_settled({});
}

// ---- it fails ------------------------------------------------------------------------------

Status CommSetup::late() const {
  return setup_error(strf("the net plugin's comms were not set up in time: {}, {}, {}",
                          send_.is_open() ? "connected" : "connect pending",
                          receive_.is_open() ? "accepted" : "accept pending",
                          proof_.is_here() ? "proof seen" : "no proof seen"));
}

void CommSetup::fail(const PathRefusal& refusal, bool tell) {
  state_ = State::kFailed;
  if (tell) {
    wire::NetSetup message;
    message.step = wire::NetStep::kFailed;
    message.status = static_cast<uint16_t>(refusal.status.code());
    message.text = refusal.status.text();
    say(message);
  }
  send_.close([this](TxFrame*) { quietly([&] { proof_.sent(); }); });
  (void)receive_.close();
  close();
  host_->carrier_settled(refusal);
}

void CommSetup::close() {
  if (connecting_ != nullptr)
    reap_connect(settings_.plugin, settings_.device, std::move(connecting_));
  if (listen_comm_ != nullptr) calls_.close_listen(std::exchange(listen_comm_, nullptr));
}

Status CommSetup::call_failed(const char* call, nccl::Result result) const {
  return setup_error(
      with_warning(strf("the net plugin's {} failed: {}", call, result_name(result))));
}

// The peer may have broken it off by dying.
Status CommSetup::call_to_peer_failed(const char* call, nccl::Result result) {
  meeting_broke_ = true;
  return call_failed(call, result);
}

std::string CommSetup::with_warning(const std::string& text) const {
  std::string warning = last_plugin_warning(started_);
  return warning.empty() ? text : text + "; the plugin's last warning here: " + warning;
}

}  // namespace tcpx::net
