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
#include "path/net/receive_comm.h"
#include "path/net/send_comm.h"
#include "wire/net_setup.h"

namespace tcpx::net {

struct NetCarrierSettings {
  std::shared_ptr<Plugin> plugin;
  const Loop* loop = nullptr;  // the lane's
  Mover* mover = nullptr;      // of that loop
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

class NetCarrier final : public Carrier, private ReceiveComm::Events {
 public:
  explicit NetCarrier(const NetCarrierSettings& settings);
  ~NetCarrier() override;

  void start(CarrierHost& host) override;
  Status on_message(std::span<const uint8_t> bytes) override;
  uint32_t credit() const override;
  // A frame that has arrived has all its requests posted, and one that is not done yet.
  uint32_t sends_done_late() const override { return nccl::kMaxRequests; }
  bool reaches(const TxFrame& frame) override {
    assert_inside();
    return send_.reaches(frame);
  }
  bool reaches(const RxChunk& chunk) override {
    assert_inside();
    return receive_.reaches(chunk);
  }
  void send(TxFrame* frame) override;
  void receive(RxChunk* chunk) override;
  Status poll(Work* left) override;
  bool holds(const RxChunk* chunk) const override {
    assert_inside();
    return receive_.holds(chunk);
  }
  void each_receiving(const std::function<void(RxChunk*)>& f) const override;
  void forget_receiving() override {
    assert_inside();
    receive_.forget_chunks();
  }
  void forget_region(uint64_t id) override;
  void close() override;
  // Those of proofs, too: they have memory in here.
  size_t moving() const override {
    assert_inside();
    return receive_.moving() + (proof_out_.ticket != 0) + (proof_in_.ticket != 0);
  }
  void look_at_moves() override;
  const char* path() const override { return "net"; }
  std::string interface() const override;
  CarrierReport report() const override {
    return {send_.occupancy().average(), receive_.occupancy().average(), send_.posted(),
            receive_.posted(), receive_.consumed()};
  }
  void peer_is_full() override {
    assert_inside();
    send_moved_ = now_ns();
  }
  std::string stalled(Nanos now, Nanos patience) const override;

 private:
  enum class State { kSettingUp, kReady, kFailed, kClosed };
  // A proof goes through a slot: a plugin may take memory of its own kind only.
  struct ProofMove {
    wire::Digest proof{};
    iovec memory{proof.data(), proof.size()};
    uint8_t* slot = nullptr;
    uint64_t ticket = 0;
  };

  void assert_inside() const { settings_.loop->assert_inside(); }
  // Set-up.
  Status call_failed(const char* call, nccl::Result result) const;
  Status call_to_peer_failed(const char* call, nccl::Result result);
  Status listen();
  Status offer_received(const wire::NetSetup& offer);
  Status advance_setup();
  Status try_connect();
  Status try_accept();
  Status take_proof_slot(SlotUse use, ProofMove* move);
  void give_proof_slot(SlotUse use, ProofMove* move);
  Status look(ProofMove* move, bool* over);
  Status show_proof();
  Status check_proof();
  void settle_if_bound();
  void fail_setup(const PathRefusal& refusal, bool tell);
  void say(wire::NetStep step);
  void close_comms();
  void end();
  // Data.
  Status arrived(RxChunk* chunk) override;
  tcpx_code move_failed(RxChunk* chunk, const std::string& why) override;
  void frame_sent(TxFrame* frame);
  Status move_payload(bool* finished);
  Work work_left() const;
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
  bool meeting_broke_ = false;  // a connect or accept failed
  ProofMove proof_out_, proof_in_;
  TxFrame proof_frame_;
  RxChunk proof_chunk_;
  bool proof_arrived_ = false;  // in its slot

  Nanos started_ = 0;
  // Each way by itself: a live one must not hide that the other is dead.
  Nanos send_moved_ = 0, receive_moved_ = 0;
};

}  // namespace tcpx::net
