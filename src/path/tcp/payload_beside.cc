#include "path/tcp/payload_beside.h"

#include <utility>

#include "base/caught.h"

namespace tcpx {

PayloadBeside::PayloadBeside(std::unique_ptr<Carrier> carrier, Lane& stream, Loop& loop,
                             LaneSink& sink, LaneCounters& counters)
    : carrier_(std::move(carrier)),
      stream_(stream),
      loop_(loop),
      sink_(sink),
      counters_(counters) {}

void PayloadBeside::start() {
  if (!std::exchange(started_, true)) carrier_->start(*this);
}

void PayloadBeside::close() noexcept {
  closed_ = true;
  quietly([&] { carrier_->close(); });
}

bool PayloadBeside::takes(const wire::Header& header) const {
  return carries() && header.payload_bytes > 0 &&
         (header.type == wire::FrameType::kWrite || header.type == wire::FrameType::kData);
}

uint32_t PayloadBeside::credit() const {
  const uint32_t credit = carrier_->credit();
  return credit > heads_ ? credit - heads_ : 0;
}

void PayloadBeside::send(TxFrame* frame) {
  --heads_;
  carrier_->send(frame);
  look_again();
}

void PayloadBeside::receive(RxChunk* chunk) {
  carrier_->receive(chunk);
  look_again();
}

RxChunk* PayloadBeside::message_comes(const wire::Header& header) {
  message_in_.reset();
  message_in_.state.step(RxChunk::State::kHead);
  message_in_.header = header;
  message_in_.message.resize(header.payload_bytes);
  message_in_.landing = {{message_in_.message.data(), message_in_.message.size()}};
  message_in_.state.step(RxChunk::State::kLanding);
  return &message_in_;
}

void PayloadBeside::message_out(const TxFrame* frame) {
  std::erase_if(messages_out_, [&](auto& message) { return message.get() == frame; });
}

// ---- CarrierHost ---------------------------------------------------------------------------

void PayloadBeside::send_message(std::span<const uint8_t> bytes) {
  loop_.assert_inside();
  if (closed_) return;
  auto message = std::make_unique<Message>();
  message->bytes.assign(bytes.begin(), bytes.end());
  message->header.type = wire::FrameType::kCarrier;
  message->header.payload_bytes = bytes.size();
  message->payload = {{message->bytes.data(), message->bytes.size()}};
  messages_out_.push_back(std::move(message));
  stream_.queue(messages_out_.back().get());
  look_again();
}

void PayloadBeside::carrier_settled(const PathRefusal& refusal) {
  loop_.assert_inside();
  way_.store(refusal.none() ? Way::kBeside : Way::kStream);
  sink_.on_settled(refusal);
  look_again();
}

void PayloadBeside::payload_sent(TxFrame* frame) {
  loop_.assert_inside();
  counters_.bytes_out.add(frame->header.payload_bytes);
  counters_.last_send.store(now_ns(), std::memory_order_relaxed);
  sink_.on_sent(frame);
}

Status PayloadBeside::payload_arrived(RxChunk* chunk) {
  loop_.assert_inside();
  counters_.bytes_in.add(chunk->header.payload_bytes);
  counters_.last_receive.store(now_ns(), std::memory_order_relaxed);
  return sink_.on_payload(chunk, {TCPX_OK, chunk->header.sequence});
}

}  // namespace tcpx
