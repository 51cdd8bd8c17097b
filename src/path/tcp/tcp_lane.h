// A lane on one TCP connection: frames and payload in one stream, both ways.
//
// Payload is received straight into its landing (no staging buffer): every recvmsg asks for the
// rest of the current payload and, behind it, for the trailer and the next header, so a chunk
// costs about as many system calls as the kernel has pieces of it ready.
#pragma once

#include "base/fd.h"
#include "path/lane.h"

namespace tcpx {

class TcpLane final : public Lane {
 public:
  struct Settings {
    wire::Limits limits;
    std::string interface;
    std::string remote;
    uint64_t socket_buffer = 0;
  };
  // `fd`: connected, authenticated, non-blocking.
  TcpLane(Loop& loop, LaneSink& sink, Fd fd, Settings settings);
  ~TcpLane() override;

  Status start(std::shared_ptr<LoopSource> self) override;

  void on_events(uint32_t events) override;
  void on_wake() override;
  bool on_hot() override;

  void queue(TxFrame* frame) override;
  bool unqueue(TxFrame* frame) override;
  void abandon(TxFrame* frame, tcpx_code reason) override;
  uint32_t payload_credit() const override;
  RxChunk* receiving() const override { return chunk_; }
  void release(RxChunk*) override {}  // the stream has no slots
  void resume_reading() override;
  void flush(uint64_t budget_bytes) override;
  void finish() override;
  void close(const Status& status) override;
  const char* path() const override { return "tcp"; }

 private:
  enum class Phase { kHeader, kTable, kPayload };
  static constexpr size_t kMaxIov = 256;

  // Receiving.
  bool receive(uint64_t budget);          // whether it stopped at the budget
  ssize_t receive_some(size_t* asked);
  Status consume(size_t bytes);
  Status consume_ahead();
  Status head_arrived();
  Status dispatch_head();
  Status trailer_arrived();
  void advance_landing(size_t bytes);

  // Sending.
  bool send(uint64_t budget);             // whether it stopped at the budget
  void begin(TxFrame* frame);
  size_t gather(iovec* iov, size_t* bytes);
  size_t gather_frame(TxFrame* frame, iovec* iov, size_t room, size_t* bytes);
  void advance(size_t bytes);

  void work();                            // one turn of receiving, filling, sending
  void set_engaged();
  void watch_room();
  void fail(const Status& status);
  Status io_error(const char* what, int err) const;

  Loop& loop_;
  LaneSink& sink_;
  Fd fd_;
  const Settings settings_;
  bool open_ = false;
  bool engaged_ = false;
  bool in_work_ = false;

  // Receiving: `ahead_` takes the trailer of the current frame (if it has one) and the next header.
  bool readable_ = false;
  Nanos eager_until_ = 0;
  bool end_hint_ = false;     // the peer has closed: read until the end is seen
  bool waiting_slot_ = false; // the sink had no receive slot
  Phase phase_ = Phase::kHeader;
  uint8_t ahead_[wire::kTrailerBytes + wire::kHeaderBytes];
  size_t ahead_got_ = wire::kTrailerBytes;
  wire::Header header_;
  std::vector<uint8_t> table_;
  size_t table_got_ = 0;
  std::vector<wire::Piece> pieces_;
  RxChunk* chunk_ = nullptr;
  uint64_t payload_left_ = 0;
  size_t landing_at_ = 0;
  uint32_t expected_sequence_ = 0;

  // Sending.
  bool writable_ = false;
  bool watching_room_ = false;
  bool finishing_ = false;
  TxFrame* first_ = nullptr;
  TxFrame* last_ = nullptr;
  uint32_t queued_payload_frames_ = 0;
  uint32_t next_sequence_ = 0;
};

}  // namespace tcpx
