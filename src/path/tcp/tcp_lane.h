// A lane on one TCP connection: frames and payload in one stream, both ways.
//
// Payload is received straight into its landing (no staging buffer): every recvmsg asks for the
// rest of the current payload and, behind it, for the trailer and the next header, so a chunk
// costs about as many system calls as the kernel has pieces of it ready.
#pragma once

#include "path/carrier.h"
#include "path/lane.h"
#include "path/path.h"

namespace tcpx {

class TcpLane final : public Lane, private CarrierHost {
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
    return carrier_ == nullptr ? 0 : carrier_->sends_done_late();
  }
  void each_receiving(const std::function<void(RxChunk*)>& f) const override;
  bool holds(const RxChunk* chunk) const override;
  void forget_region(uint64_t id) override;
  void peer_is_full() override {
    if (carrier_ != nullptr) carrier_->peer_is_full();
  }
  void hold_reading(ReadHold why) override;
  void resume_reading(ReadHold why) override;
  bool silent() const override { return silent_; }
  void flush(uint64_t budget_bytes) noexcept override;
  void finish() override;
  void close(const Status& status) noexcept override;
  size_t moving() const override { return carrier_ == nullptr ? 0 : carrier_->moving(); }
  void look_at_moves() override {
    if (carrier_ != nullptr) carrier_->look_at_moves();
  }
  const char* path() const override;
  bool settled() const override { return way_.load() != Way::kUnsettled; }
  std::string interface() const override;
  std::optional<CarrierReport> carrier_report() const override {
    return carrier_ ? std::optional(carrier_->report()) : std::nullopt;
  }
  std::string stalled(Nanos now, Nanos patience) const override;

 private:
  enum class Phase { kHeader, kTable, kPayload };
  // How the payload of WRITE and DATA frames travels.
  enum class Way : uint8_t { kInStream, kUnsettled, kBeside };
  struct Message : TxFrame {  // of our carrier to the other one
    std::vector<uint8_t> bytes;
  };
  static constexpr size_t kMaxIov = 256;
  // Where a turn is nobody else's business, at the end of a stream.
  static constexpr uint64_t kLastTurn = 4u << 20;

  // Receiving.
  bool receive(uint64_t budget);  // whether it stopped at the budget
  ssize_t receive_some(size_t* asked);
  void watch_bytes();
  Status consume(size_t bytes);
  Status consume_ahead();
  Status head_arrived();
  Status dispatch_head();
  Status trailer_arrived();
  void advance_landing(size_t bytes);
  bool held(ReadHold why) const { return (read_holds_ & static_cast<uint8_t>(why)) != 0; }
  void set_hold(ReadHold why, bool on);
  bool discard_unmapped();

  // ---- CarrierHost ----
  void send_message(std::span<const uint8_t> bytes) override;
  void carrier_settled(const PathRefusal& refusal) override;
  void payload_sent(TxFrame* frame) override;
  Status payload_arrived(RxChunk* chunk) override;
  tcpx_code move_failed(RxChunk* chunk, const std::string& why) override {
    return sink_.on_move_failed(chunk, why);
  }

  bool goes_beside(const wire::Header& header) const;
  Status message_head();
  Status check_way() const;
  void start_carrier();
  Work poll_carrier();
  void frame_out(TxFrame* frame);

  // Sending.
  bool send(uint64_t budget);  // whether it stopped at the budget
  void begin(TxFrame* frame);
  size_t gather(iovec* iov, size_t* bytes);
  size_t gather_frame(TxFrame* frame, iovec* iov, size_t room, size_t* bytes);
  void advance(size_t bytes);
  bool abandon_unmapped();

  void flush_or_throw(uint64_t budget_bytes);
  void work();  // one turn of receiving, filling, sending
  void set_engaged();
  void watch_room();
  void fail(const Status& status);
  Status io_error(const char* what, int err) const;

  Loop& loop_;
  LaneSink& sink_;
  Fd fd_;
  const StreamSettings settings_;
  std::unique_ptr<Carrier> carrier_;
  bool carrier_started_ = false;
  std::atomic<Way> way_{Way::kInStream};
  bool open_ = false;
  bool engaged_ = false;
  bool in_work_ = false;

  // Receiving: `ahead_` takes the trailer of the current frame (if it has one) and the next header.
  bool readable_ = false;
  int event_bytes_ = 1;     // fewer bytes than this are no event
  bool end_hint_ = false;   // the peer has closed: read until the end is seen
  uint8_t read_holds_ = 0;  // of ReadHold
  Phase phase_ = Phase::kHeader;
  uint8_t ahead_[wire::kTrailerBytes + wire::kHeaderBytes];
  size_t ahead_got_ = wire::kTrailerBytes;
  wire::Header header_;
  std::vector<uint8_t> table_;
  size_t table_got_ = 0;
  std::vector<wire::Piece> pieces_;
  RxChunk* chunk_ = nullptr;
  RxChunk message_;  // from the other carrier
  uint64_t payload_left_ = 0;
  size_t landing_at_ = 0;
  uint32_t expected_sequence_ = 0;
  uint64_t handling_ = 0;  // cost of the frames of this turn

  // Sending.
  bool writable_ = false;
  bool watching_room_ = false;
  bool finishing_ = false;
  bool silent_ = false;  // nothing is sent any more
  bool met_unmapped_ = false;
  TxFrame* first_ = nullptr;
  TxFrame* last_ = nullptr;
  uint32_t queued_payload_frames_ = 0;
  uint32_t queued_beside_ = 0;  // heads not yet out
  std::vector<std::unique_ptr<Message>> messages_;
  uint32_t next_sequence_ = 0;
};

}  // namespace tcpx
