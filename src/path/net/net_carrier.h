// Payload through an NCCL net plugin: a send comm and a receive comm beside each lane.
//
// They are set up first (comm_setup.h); then frames and chunks go to their comm, and their ends to
// the lane.
#pragma once

#include "path/carrier.h"
#include "path/net/comm_setup.h"

namespace tcpx::net {

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
  size_t moving() const override {
    assert_inside();
    return receive_.moving() + setup_.proof().moving();
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
  void assert_inside() const { settings_.loop->assert_inside(); }
  bool is_ready() const { return !closed_ && setup_.is_ready(); }
  Status arrived(RxChunk* chunk) override;
  tcpx_code move_failed(RxChunk* chunk, const std::string& why) override;
  void frame_sent(TxFrame* frame);
  Status poll_setup(Work* left);
  Status poll_payload(Work* left);
  Status move_payload(bool* finished);
  Work work_left() const;
  void pause();
  void end();

  const NetCarrierSettings settings_;
  CarrierHost* host_ = nullptr;
  SendComm send_;
  ReceiveComm receive_;
  CommSetup setup_;
  bool closed_ = false;
  // Each way by itself: a live one must not hide that the other is dead.
  Nanos send_moved_ = 0, receive_moved_ = 0;
};

}  // namespace tcpx::net
