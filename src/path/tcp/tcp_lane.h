// A lane on one TCP connection: frames and payload in one stream, both ways; or the stream of a
// lane whose payload goes beside it.
//
// Payload is received straight into its landing (no staging buffer): every recvmsg asks for the
// rest of the current payload and, behind it, for the trailer and the next header, so a chunk
// costs about as many system calls as the kernel has pieces of it ready.
//
// Its parts: SendQueue and Incoming (where the stream stands, both ways), PayloadBeside (null where
// payload is in the stream). More than 40 functions: 30 of them are Lane's, and few of those do
// more than ask a part.
#pragma once

#include "path/carrier.h"
#include "path/lane.h"
#include "path/path.h"
#include "path/tcp/incoming.h"
#include "path/tcp/payload_beside.h"
#include "path/tcp/send_queue.h"

namespace tcpx {

class TcpLane final : public Lane {
 public:
  // `fd`: connected, authenticated, non-blocking. `carrier`: may be null.
  TcpLane(Loop& loop, LaneSink& sink, Fd fd, StreamSettings settings,
          std::unique_ptr<Carrier> carrier = nullptr);
  ~TcpLane() override;

  Status start(std::shared_ptr<LoopSource> self, uint64_t owner) override;

  void on_events(uint32_t events) override;
  void on_wake() override;
  Work on_hot() override;
  bool on_spin() override;
  void on_failure(const Status& status) noexcept override;

  bool reaches(const TxFrame& frame) override;
  bool reaches(const RxChunk& chunk) override;
  void queue(TxFrame* frame) override;
  bool unqueue(TxFrame* frame) override;
  bool abandon(TxFrame* frame, tcpx_code reason) override;
  uint32_t payload_credit() const override;
  uint32_t sends_done_late() const override {
    loop_.assert_inside();
    return beside_ == nullptr ? 0 : beside_->carrier().sends_done_late();
  }
  void each_receiving(const std::function<void(RxChunk*)>& f) const override;
  bool holds(const RxChunk* chunk) const override {
    loop_.assert_inside();
    return beside_ != nullptr && beside_->carrier().holds(chunk);
  }
  void forget_region(uint64_t id) override {
    loop_.assert_inside();
    if (beside_ != nullptr && open_) beside_->carrier().forget_region(id);
  }
  void peer_is_full() override {
    loop_.assert_inside();
    if (beside_ != nullptr) beside_->carrier().peer_is_full();
  }
  void hold_reading(ReadHold why) override;
  void resume_reading(ReadHold why) override;
  bool silent() const override {
    loop_.assert_inside();
    return silent_;
  }
  void flush(uint64_t budget_bytes) noexcept override;
  void finish() override;
  void close(const Status& status) noexcept override;
  size_t moving() const override {
    loop_.assert_inside();
    return beside_ == nullptr ? 0 : beside_->carrier().moving();
  }
  void look_at_moves() override {
    loop_.assert_inside();
    if (beside_ != nullptr) beside_->carrier().look_at_moves();
  }
  const char* path() const override { return carried_beside() ? beside_->carrier().path() : "tcp"; }
  bool settled() const override { return beside_ == nullptr || beside_->settled(); }
  std::string interface() const override {
    return carried_beside() ? beside_->carrier().interface() : settings_.interface;
  }
  std::optional<CarrierReport> carrier_report() const override {
    return beside_ ? std::optional(beside_->carrier().report()) : std::nullopt;
  }
  std::string stalled(Nanos now, Nanos patience) const override {
    loop_.assert_inside();
    return beside_ == nullptr || !open_ ? std::string() : beside_->carrier().stalled(now, patience);
  }

 private:
  static constexpr size_t kMaxIov = Incoming::kMaxIov;
  // Where a turn is nobody else's business, at the end of a stream.
  static constexpr uint64_t kLastTurn = 4u << 20;

  bool carried_beside() const { return beside_ != nullptr && beside_->carries(); }
  bool goes_beside(const wire::Header& header) const {
    return beside_ != nullptr && beside_->takes(header);
  }
  Work poll_beside();

  // Receiving.
  bool receive(uint64_t budget);  // whether it stopped at the budget
  ssize_t receive_some(size_t* asked);
  void watch_bytes();
  Status consume(size_t bytes);
  Status consume_ahead();
  Status head_arrived();
  Status dispatch_head();
  Status message_head();
  Status trailer_arrived();
  bool held(ReadHold why) const { return (read_holds_ & static_cast<uint8_t>(why)) != 0; }
  void set_hold(ReadHold why, bool on);
  bool discard_unmapped();

  // Sending.
  bool send(uint64_t budget);  // whether it stopped at the budget
  void frame_out(TxFrame* frame);
  bool abandon_unmapped();

  void flush_or_throw(uint64_t budget_bytes);
  void work();  // one turn of receiving, filling, sending
  void set_engaged();
  void watch_room();
  Status io_error(const char* what, int err) const;

  Loop& loop_;
  LaneSink& sink_;
  Fd fd_;
  const StreamSettings settings_;
  const std::unique_ptr<PayloadBeside> beside_;  // null: all payload is in the stream
  bool open_ = false;
  bool engaged_ = false;
  bool in_work_ = false;

  // Receiving.
  Incoming in_;
  bool readable_ = false;
  int event_bytes_ = 1;     // fewer bytes than this are no event
  bool end_hint_ = false;   // the peer has closed: read until the end is seen
  uint8_t read_holds_ = 0;  // of ReadHold
  uint64_t handling_ = 0;   // cost of the frames of this turn

  // Sending.
  SendQueue out_;
  bool writable_ = false;
  bool watching_room_ = false;
  bool finishing_ = false;
  bool silent_ = false;  // nothing is sent any more
  bool met_unmapped_ = false;
};

}  // namespace tcpx
