// Payload through an NCCL net plugin: a send comm and a receive comm beside each lane.
//
// Set-up (wire/net_setup.h): both ends listen, tell each other where, connect and accept; then each
// sends a proof through its send comm that it holds the session's key, so that a comm made by a
// stranger is never used. A receiver says "ready" before anything is sent to it: a plugin's sender
// is usable before its receiver is, and what arrives too early may be fatal there.
#pragma once

#include <array>
#include <optional>

#include "config/cpu_list.h"
#include "path/carrier.h"
#include "path/net/comm.h"
#include "wire/net_setup.h"

namespace tcpx::net {

struct NetCarrierSettings {
  std::shared_ptr<Plugin> plugin;
  const RegionTable* regions = nullptr;
  int memory_type = nccl::kPtrHost;
  int device = 0;
  uint32_t lane = 0;
  std::array<uint8_t, wire::kDigestBytes> session_key{};
  uint64_t request_bytes = 512u << 10;
  uint32_t send_window = 12;
  uint32_t receive_window = nccl::kMaxRequests;
  Nanos setup_deadline = kNever;
  CpuSet cpus;  // of the lane's thread; none: anywhere
};

class NetCarrier final : public Carrier {
 public:
  explicit NetCarrier(const NetCarrierSettings& settings);
  ~NetCarrier() override;

  void start(CarrierHost& host) override;
  Status on_message(std::span<const uint8_t> bytes) override;
  uint32_t credit() const override;
  // A frame that has arrived has all its requests posted, and one that is not done yet.
  uint32_t sends_done_late() const override { return nccl::kMaxRequests; }
  void send(TxFrame* frame) override;
  void receive(RxChunk* chunk) override;
  Status poll(bool* more) override;
  bool holds(const TxFrame* frame) const override { return send_.holds(frame); }
  bool holds(const RxChunk* chunk) const override { return receive_.holds(chunk); }
  void each_receiving(const std::function<void(RxChunk*)>& f) const override;
  void forget_receiving() override { receive_.forget_chunks(); }
  void forget_memory(const void* base, uint64_t length) override;
  void close() override;
  const char* path() const override { return "net"; }
  std::string interface() const override;
  CarrierReport report() const override {
    return {send_.occupancy().average(), receive_.occupancy().average(), send_.posted(),
            receive_.posted(), receive_.consumed()};
  }
  std::string stalled(Nanos now, Nanos patience) const override;

 private:
  enum class State { kSettingUp, kReady, kFailed, kClosed };

  // Set-up.
  Status call_failed(const char* call, nccl::Result result) const;
  Status listen();
  Status offer_received(const wire::NetSetup& offer);
  Status advance_setup();
  Status try_connect();
  Status try_accept();
  Status show_proof();
  Status check_proof();
  void settle_if_bound();
  void fail_setup(const Status& status, bool tell);
  void say(wire::NetStep step);
  void close_comms();
  // Data.
  Status move_payload(bool* finished);
  void pause();

  NetCarrierSettings settings_;
  PluginCalls& calls_;
  CarrierHost* host_ = nullptr;
  State state_ = State::kSettingUp;
  SendComm send_;
  ReceiveComm receive_;

  wire::NetSetup offer_;  // ours
  std::optional<wire::NetSetup> peers_offer_;
  // The plugin keeps state in it while connecting; set from the first connect until it has ended.
  std::unique_ptr<wire::NetHandle> connecting_;
  alignas(16) nccl::DeviceHandle device_handle_{};
  void* listen_comm_ = nullptr;
  bool peer_ready_ = false, proof_sent_ = false, bound_sent_ = false, peer_bound_ = false;
  Status setup_failure_;  // ours; what becomes of the lane may hang on the peer's word
  Nanos failed_at_ = 0;
  wire::Digest proof_received_{};
  RxChunk proof_chunk_;
  bool proof_arrived_ = false;

  Nanos started_ = 0;
  // Each way by itself: a live one must not hide that the other is dead.
  Nanos send_moved_ = 0, receive_moved_ = 0;
};

}  // namespace tcpx::net
