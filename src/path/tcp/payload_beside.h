// The payload of a lane that something else than its stream carries (path/carrier.h): what the
// stream has to know of that, and the messages between the two carriers, which go through it. A
// lane without a carrier has none of this.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "path/carrier.h"
#include "path/lane.h"

namespace tcpx {

class PayloadBeside final : private CarrierHost {
 public:
  // `stream`: the lane that this is part of. `sink`, `counters`: of that lane.
  PayloadBeside(std::unique_ptr<Carrier> carrier, Lane& stream, Loop& loop, LaneSink& sink,
                LaneCounters& counters);

  Carrier& carrier() { return *carrier_; }
  const Carrier& carrier() const { return *carrier_; }

  // ---- any thread ----
  // Until it knows how payload will travel none may flow.
  bool settled() const { return way_.load() != Way::kUnsettled; }
  // It carries payload. If not, once it is settled, the stream does.
  bool carries() const { return way_.load(std::memory_order_relaxed) == Way::kBeside; }

  // ---- in the exclusive section ----
  // Not when the lane starts, which others wait for: it may hang.
  void start();
  void close() noexcept;
  bool takes(const wire::Header& header) const;
  // Frames with payload that may be queued now, of those that it takes.
  uint32_t credit() const;

  // Its head waits for the stream.
  void queued() { ++heads_; }
  void taken_back() { --heads_; }
  // Its head is out.
  void send(TxFrame* frame);
  void receive(RxChunk* chunk);

  // A message of the other carrier comes: where it lands, and when all of it is there.
  RxChunk* message_comes(const wire::Header& header);
  Status message_is_here() { return carrier_->on_message(message_in_.message); }
  // The stream has taken a message of ours, or will take no more.
  void message_out(const TxFrame* frame);

 private:
  enum class Way : uint8_t { kStream, kUnsettled, kBeside };
  struct Message : TxFrame {
    std::vector<uint8_t> bytes;
  };

  // ---- CarrierHost ----
  void send_message(std::span<const uint8_t> bytes) override;
  void carrier_settled(const PathRefusal& refusal) override;
  void payload_sent(TxFrame* frame) override;
  Status payload_arrived(RxChunk* chunk) override;
  tcpx_code move_failed(RxChunk* chunk, const std::string& why) override {
    loop_.assert_inside();
    return sink_.on_move_failed(chunk, why);
  }
  void look_again() { loop_.make_hot(stream_.source_index()); }

  const std::unique_ptr<Carrier> carrier_;
  Lane& stream_;
  Loop& loop_;
  LaneSink& sink_;
  LaneCounters& counters_;
  bool started_ = false;
  bool closed_ = false;
  std::atomic<Way> way_{Way::kUnsettled};
  uint32_t heads_ = 0;  // not yet out
  std::vector<std::unique_ptr<Message>> messages_out_;
  RxChunk message_in_;
};

}  // namespace tcpx
