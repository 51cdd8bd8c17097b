// Payload beside the stream: a lane whose payload is carried by something else (a net plugin),
// while heads and answers stay in the stream.
#include "base/text.h"
#include "path/tcp/tcp_lane.h"

namespace tcpx {

bool TcpLane::goes_beside(const wire::Header& header) const {
  return way_.load(std::memory_order_relaxed) == Way::kBeside && header.payload_bytes > 0 &&
         (header.type == wire::FrameType::kWrite || header.type == wire::FrameType::kData);
}

// A peer that knows how payload travels before we do has not followed the protocol.
Status TcpLane::check_way() const {
  if (header_.is_notice() || way_.load(std::memory_order_relaxed) != Way::kUnsettled) return {};
  return peer_error(TCPX_PROTOCOL_ERROR, "payload before the lane's carrier was settled");
}

// The kernel reads and writes host memory wherever it lies.
bool TcpLane::reaches(const TxFrame& frame) {
  return !goes_beside(frame.header) || carrier_->reaches(frame);
}

bool TcpLane::reaches(const RxChunk& chunk) {
  return !goes_beside(chunk.header) || carrier_->reaches(chunk);
}

Status TcpLane::message_head() {
  if (carrier_ == nullptr)
    return peer_error(TCPX_PROTOCOL_ERROR, "a message for a carrier that does not exist here");
  message_.reset();
  message_.header = header_;
  message_.message.resize(header_.payload_bytes);
  message_.landing = {{message_.message.data(), message_.message.size()}};
  chunk_ = &message_;
  phase_ = Phase::kPayload;
  payload_left_ = header_.payload_bytes;
  landing_at_ = 0;
  ahead_got_ = 0;
  return {};
}

void TcpLane::send_message(std::span<const uint8_t> bytes) {
  if (!open_) return;
  auto message = std::make_unique<Message>();
  message->bytes.assign(bytes.begin(), bytes.end());
  message->header.type = wire::FrameType::kCarrier;
  message->header.payload_bytes = bytes.size();
  message->payload = {{message->bytes.data(), message->bytes.size()}};
  queue(message.get());
  messages_.push_back(std::move(message));
  loop_.make_hot(source_index_);
}

void TcpLane::carrier_settled(const PathRefusal& refusal) {
  way_.store(refusal.none() ? Way::kBeside : Way::kInStream);
  sink_.on_settled(refusal);
  loop_.make_hot(source_index_);
}

void TcpLane::payload_sent(TxFrame* frame) {
  counters_.bytes_out.fetch_add(frame->header.payload_bytes, std::memory_order_relaxed);
  counters_.last_send.store(now_ns(), std::memory_order_relaxed);
  sink_.on_sent(frame);
}

Status TcpLane::payload_arrived(RxChunk* chunk) {
  counters_.bytes_in.fetch_add(chunk->header.payload_bytes, std::memory_order_relaxed);
  counters_.last_receive.store(now_ns(), std::memory_order_relaxed);
  return sink_.on_payload(chunk, {TCPX_OK, chunk->header.sequence});
}

// Not in start(), which others wait for: it may hang.
void TcpLane::start_carrier() {
  if (carrier_ == nullptr || std::exchange(carrier_started_, true)) return;
  carrier_->start(*this);
}

Work TcpLane::poll_carrier() {
  if (in_work_) return Work::kMore;
  in_work_ = true;
  start_carrier();
  Work left = Work::kNone;
  Status status = carrier_->poll(&left);
  // A peer that says goodbye closes its comms too; the stream says which of the two it was.
  if (!status && open_) receive(kLastTurn);
  in_work_ = false;
  if (!status) fail(status);
  return open_ ? left : Work::kNone;
}

const char* TcpLane::path() const {
  return way_.load() == Way::kBeside ? carrier_->path() : "tcp";
}

std::string TcpLane::interface() const {
  return way_.load() == Way::kBeside ? carrier_->interface() : settings_.interface;
}

std::string TcpLane::stalled(Nanos now, Nanos patience) const {
  return carrier_ == nullptr || !open_ ? std::string() : carrier_->stalled(now, patience);
}

void TcpLane::each_receiving(const std::function<void(RxChunk*)>& f) const {
  if (chunk_ != nullptr && chunk_ != &message_) f(chunk_);
  if (carrier_ != nullptr) carrier_->each_receiving(f);
}

bool TcpLane::holds(const RxChunk* chunk) const {
  return carrier_ != nullptr && carrier_->holds(chunk);
}

void TcpLane::forget_region(uint64_t id) {
  if (carrier_ != nullptr && open_) carrier_->forget_region(id);
}

}  // namespace tcpx
