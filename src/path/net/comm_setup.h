// How a lane comes by its comms (wire/net_setup.h): both ends listen, tell each other where,
// connect and accept; then each shows a proof through its send comm. A receiver says "ready" before
// anything is sent to it: a plugin's sender is usable before its receiver is, and what arrives too
// early may be fatal there.
//
// In the exclusive section of the lane's loop.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "path/carrier.h"
#include "path/net/comm_proof.h"

namespace tcpx::net {

class CommSetup {
 public:
  // The comms are its carrier's: opened here, and closed when nothing comes of them.
  CommSetup(const NetCarrierSettings& settings, SendComm& send, ReceiveComm& receive);

  void start(CarrierHost& host);
  Status on_message(std::span<const uint8_t> bytes);
  Status poll();  // a step. Not ok: the lane is lost
  bool goes_on() const { return state_ == State::kGoesOn; }
  bool is_ready() const { return state_ == State::kReady; }
  bool has_failed() const { return state_ == State::kFailed; }
  // What is neither of the comms: nobody comes any more, and nobody is awaited.
  void close();

  CommProof& proof() { return proof_; }
  const CommProof& proof() const { return proof_; }

 private:
  enum class State { kGoesOn, kReady, kFailed };

  Status listen();
  Status offer_received(const wire::NetSetup& offer);
  Status advance();
  Status try_connect();
  Status try_accept();
  Status check_proof();
  void settle_if_bound();
  Status late() const;
  void fail(const PathRefusal& refusal, bool tell);
  Status call_failed(const char* call, nccl::Result result) const;
  Status call_to_peer_failed(const char* call, nccl::Result result);
  std::string with_warning(const std::string& text) const;
  void say(const wire::NetSetup& message);
  void say(wire::NetStep step);

  const NetCarrierSettings& settings_;
  PluginCalls& calls_;
  SendComm& send_;
  ReceiveComm& receive_;
  CarrierHost* host_ = nullptr;
  State state_ = State::kGoesOn;
  Nanos started_ = 0;
  uint64_t request_bytes_;  // the smaller one of both ends'
  wire::NetSetup offer_;    // ours
  std::optional<wire::NetSetup> peers_offer_;
  // The plugin keeps state in it while connecting; set from the first connect until it has ended.
  std::unique_ptr<wire::NetHandle> connecting_;
  alignas(16) nccl::DeviceHandle device_handle_{};
  void* listen_comm_ = nullptr;
  CommProof proof_;
  bool peer_ready_ = false, bound_sent_ = false, peer_bound_ = false;
  Status failure_;  // ours; what becomes of the lane may hang on the peer's word
  Nanos failed_at_ = 0;
  bool meeting_broke_ = false;  // a connect or accept failed
};

}  // namespace tcpx::net
