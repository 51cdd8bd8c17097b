// The path interface: an ordered lane of frames with payload.
//
// A path (tcp, net) moves frames between two engines. It knows nothing of transfers, regions
// or peers: what a frame means is its sink's business (engine/peer_lane.h). What differs between
// paths is hidden here:
//  - how payload travels: in the same stream (tcp), beside it in plugin requests (net), not at all;
//  - how many payload frames may be queued at once: payload_credit() (a plugin has 16 requests).
//
// Every call in either direction is made in the exclusive section of the lane's loop.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/message_bytes.h"
#include "base/ranges.h"
#include "base/status.h"
#include "base/steps.h"
#include "memory/place.h"
#include "memory/region_extent.h"
#include "path/loop.h"
#include "path/path_refusal.h"
#include "wire/frame.h"

namespace tcpx {

// A frame on its way out. Owned by whoever queued it; the lane holds it until on_sent().
struct TxFrame {
  TxFrame* next = nullptr;
  wire::Header header;
  std::vector<uint8_t> table;       // encoded pieces
  std::vector<iovec> payload;       // what is left of it once `started`
  PartRegions regions;              // that the payload lies in
  std::vector<wire::Piece> pieces;  // whose memory it is, when regions can be revoked
  Place place{};                    // of the memory
  uint64_t copied = 0;              // bytes of payload that were copied once more on their way out
  uint16_t trailer_status = TCPX_OK;

  // Progress, kept by the lane.
  bool beside = false;   // its payload does not go through the stream
  bool started = false;  // header is encoded, its bytes may be out
  uint64_t left = 0;     // bytes of the whole frame not yet handed to the kernel
  size_t next_payload = 0;
  uint8_t head[wire::kHeaderBytes];
  uint8_t tail[wire::kTrailerBytes];

  // Staged: the slot that is sent, the ticket while it is being filled, and from where.
  uint8_t* slot = nullptr;
  uint64_t move = 0;
  std::vector<iovec> memory;
  ProfiledRange sending;  // out of the slot

  void reset();
  bool has_tail() const { return header.has_payload() && !beside; }
};

struct ChunkInRules {
  enum class State : uint8_t {
    kFree,
    kHead,      // where it goes is being found out
    kLanding,   // its payload is being received
    kDropping,  // the same, but nobody wants it
    kPlacing,   // all of it is in a slot, and being moved into memory that lanes cannot write
    kArrived    // nothing of it touches memory any more; whoever waits for it is told
  };
  static constexpr const char* kWhat = "a chunk on its way in";
  using enum State;
  static constexpr std::array kStates = {
      Step{kFree, "free", {kHead}},
      Step{kHead, "head", {kLanding, kDropping, kFree}},
      Step{kLanding, "landing", {kDropping, kPlacing, kArrived, kFree}},
      Step{kDropping, "dropping", {kArrived, kFree}},
      Step{kPlacing, "placing", {kArrived}},
      Step{kArrived, "arrived", {kFree}},
  };
};

// Payload on its way in.
struct RxChunk {
  using State = ChunkInRules::State;
  Stepped<ChunkInRules> state;
  wire::Header header;
  std::vector<wire::Piece> pieces;
  std::vector<iovec> destination;  // where it belongs, all of it in `place`
  Place place{};
  std::vector<iovec> landing;   // where the lane receives it; consumed as bytes arrive
  PartRegions regions;          // that the landing lies in
  tcpx_code refusal = TCPX_OK;  // why it is dropped, or was not to be used when all was there
  uint8_t* slot = nullptr;      // staged: where it lands
  bool spare = false;           // that is none, but a mover's spare memory
  uint64_t move = 0;            // ticket of kPlacing
  ProfiledRange receiving;      // into the slot
  uint64_t copied = 0;          // bytes that were copied once more on their way in
  MessageBytes message;         // payload of a notification, as far as it has come
  bool reserved = false;        // there is room in the inbox for it

  bool dropped() const { return state == State::kDropping; }
  // What is left of its payload is received and dropped. Of a head, or while it lands.
  void drop(tcpx_code why) {
    state.step(State::kDropping);
    refusal = why;
  }
  void reset();
};

// Why a lane is not read although bytes may wait in its socket. Each reason is set and lifted by
// itself; the lane is read when there is none. What is sent goes on meanwhile.
enum class ReadHold : uint8_t {
  kNoSlot = 1,         // the sink had no place for a chunk
  kUnreadAnswers = 2,  // the peer asks and does not read what it is answered
  kRefusals = 4,       // the peer names memory that it may not use, again and again
};

// What a carrier tells of its requests.
struct CarrierReport {
  // How full the windows were kept while there was more to post, 0..1; negative: not known.
  double send_occupancy = -1, receive_occupancy = -1;
  uint64_t sends = 0, receives = 0;  // posted
  uint64_t consumed = 0;             // receives whose bytes were taken out of the plugin's buffers
};

class LaneSink {
 public:
  virtual ~LaneSink() = default;
  // A frame without payload. Not ok: the lane ends with that status.
  virtual Status on_frame(const wire::Header& header, std::span<const wire::Piece> pieces) = 0;
  // The head of a frame with payload: says where it lands. *chunk == nullptr with an ok status:
  // no receive slot is free, ask again through resume_reading(ReadHold::kNoSlot).
  virtual Status on_head(const wire::Header& header, std::span<const wire::Piece> pieces,
                         RxChunk** chunk) = 0;
  // The landing of `chunk` is full and more is to come: a landing may be shorter than its payload,
  // so that memory is taken as bytes arrive and not because a head announced them.
  virtual void extend_landing(RxChunk* chunk) = 0;
  // All payload of `chunk` arrived (or was dropped); the sender's verdict is in the trailer.
  virtual Status on_payload(RxChunk* chunk, const wire::Trailer& trailer) = 0;
  // The memory of a frame on its way out, or where a chunk lands, is not mapped any more; `at` or
  // something behind it. What is left of the payload is given up, with the code that is returned,
  // and the lane goes on.
  virtual tcpx_code on_unmapped(TxFrame* frame, const void* at) = 0;
  virtual tcpx_code on_unmapped(RxChunk* chunk, const void* at) = 0;
  // The same for a move into where it lands that failed.
  virtual tcpx_code on_move_failed(RxChunk* chunk, const std::string& why) = 0;
  // The frame is out; its memory is not needed any more.
  virtual void on_sent(TxFrame* frame) = 0;
  // There is room: queue more frames if there are any.
  virtual void fill() = 0;
  // Whether the peer owes us something on this lane, so that it is worth watching closely.
  virtual bool awaits_answer() const = 0;
  // The lane knows how payload will travel; until then it has no credit. With a refusal: not as it
  // was meant to (the lane works all the same).
  virtual void on_settled(const PathRefusal& refusal) = 0;
  // Work without an event: moves under way.
  virtual Work on_idle() = 0;
  // The lane is closed and out of its loop; frames still queued are handed back through on_sent.
  virtual void on_down(const Status& status) noexcept = 0;
};

// Counts in the exclusive section of one loop, so without a locked instruction; read by any thread.
class Tally {
 public:
  void add(uint64_t more) { value_.store(load() + more, std::memory_order_relaxed); }
  uint64_t load() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// What a lane has seen; read by other threads for reports and by the watchdog.
struct LaneCounters {
  Tally bytes_out, bytes_in;
  Tally frames_out, frames_in;
  Tally send_calls, receive_calls;  // that brought something
  std::atomic<Nanos> last_receive{0};
  std::atomic<Nanos> last_send{0};
  std::atomic<uint8_t> read_holds{0};  // of ReadHold
};

class Lane : public LoopSource {
 public:
  // Joins its loop. `self` keeps the lane's owner alive while the loop knows it; lanes of one
  // `owner` share its turns.
  virtual Status start(std::shared_ptr<LoopSource> self, uint64_t owner) = 0;
  uint32_t source_index() const { return source_index_; }

  // Whether the lane can send the payload from where it lies, or receive it where it belongs; else
  // it goes through a slot of the loop's mover. Asked when all but that is known of it.
  virtual bool reaches(const TxFrame& frame) = 0;
  virtual bool reaches(const RxChunk& chunk) = 0;
  virtual void queue(TxFrame* frame) = 0;
  // Takes a frame back that was queued and has not started; false if it has.
  virtual bool unqueue(TxFrame* frame) = 0;
  // Gives up the payload of a frame that has started: zeros fill its place, the trailer says why.
  // False: its memory is still being read; it was sent, or the lane closed, when it is on_sent().
  virtual bool abandon(TxFrame* frame, tcpx_code reason) = 0;
  // Frames with payload that may be queued now.
  virtual uint32_t payload_credit() const = 0;
  // Frames whose payload may be with the peer, and answered, before they are on_sent().
  virtual uint32_t sends_done_late() const { return 0; }
  // Chunks being received.
  virtual void each_receiving(const std::function<void(RxChunk*)>& f) const = 0;
  // Whether bytes may still be written to the chunk's landing although it is dropped.
  virtual bool holds(const RxChunk* chunk) const = 0;
  // The region is being deregistered and no frame or chunk uses its memory any more.
  virtual void forget_region(uint64_t id) = 0;
  // The peer has said that it has no room for more: what is not sent meanwhile is not stalled.
  virtual void peer_is_full() = 0;
  virtual void hold_reading(ReadHold why) = 0;
  virtual void resume_reading(ReadHold why) = 0;
  // Nothing is sent any more: answers need not be queued.
  virtual bool silent() const = 0;
  // Sends what can be sent now. Throws nothing: on_failure().
  virtual void flush(uint64_t budget_bytes) noexcept = 0;
  // No more frames will be queued; the peer sees the end of the stream after the last one.
  virtual void finish() = 0;
  // Whatever happens, nothing of the lane touches memory afterwards, but for its moves under way:
  // the chunks that they hold must stay until there are none left.
  virtual void close(const Status& status) noexcept = 0;
  virtual size_t moving() const = 0;
  virtual void look_at_moves() = 0;  // once it is closed
  // Something of the lane threw, and it may be in the middle of anything: closes it.
  void on_failure(const Status& status) noexcept override = 0;

  // Any thread:
  virtual const char* path() const = 0;
  virtual bool settled() const = 0;
  virtual std::string interface() const = 0;
  // Of what carries its payload beside the stream, if anything does. Any thread.
  virtual std::optional<CarrierReport> carrier_report() const { return {}; }
  // "" or why the lane should be given up although its stream is alive.
  virtual std::string stalled(Nanos now, Nanos patience) const = 0;  // in the exclusive section
  const std::string& remote() const { return remote_; }
  const LaneCounters& counters() const { return counters_; }

 protected:
  std::string remote_;  // address of the other end
  LaneCounters counters_;
  uint32_t source_index_ = UINT32_MAX;
};

// Makes the lane of a path once its loop and sink are known.
using LaneFactory = std::function<std::unique_ptr<Lane>(Loop&, LaneSink&)>;

}  // namespace tcpx
