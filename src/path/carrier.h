// How payload travels when it does not travel in the lane's own stream.
//
// A lane is a stream of frames (path/tcp/tcp_lane.h). With a carrier, the payload of WRITE and DATA
// frames goes beside the stream: the stream still carries their heads, in order, and the carrier
// moves their bytes in the same order. Until the carrier has settled no payload may flow; if it
// settles as failed, payload goes through the stream as if there had never been a carrier.
//
// Like the lane, a carrier lives in the exclusive section of its loop. Calls into a plugin may
// hang, so a lane with a carrier has a loop, and a thread, of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "path/lane.h"

namespace tcpx {

// The lane, as its carrier sees it.
class CarrierHost {
 public:
  virtual ~CarrierHost() = default;
  // To the carrier at the other end, through the stream, in order with its frames.
  virtual void send_message(std::span<const uint8_t> bytes) = 0;
  // Set-up is over. With a refusal: no carrier.
  virtual void carrier_settled(const PathRefusal& refusal) = 0;
  // The frame's memory is not read any more.
  virtual void payload_sent(TxFrame* frame) = 0;
  // All payload of the chunk is where its landing says, or was dropped.
  virtual Status payload_arrived(RxChunk* chunk) = 0;
  // A move into its landing failed: with which code the chunk is refused.
  virtual tcpx_code move_failed(RxChunk* chunk, const std::string& why) = 0;
};

class Carrier {
 public:
  virtual ~Carrier() = default;

  virtual void start(CarrierHost& host) = 0;
  virtual Status on_message(std::span<const uint8_t> bytes) = 0;

  // Payload frames that may be handed over now.
  virtual uint32_t credit() const = 0;
  // Frames that may have arrived before they are payload_sent(), at most.
  virtual uint32_t sends_done_late() const = 0;
  // Whether it can use the memory as it lies there; else it is to be in a slot of the loop's mover
  // when it is handed over.
  virtual bool reaches(const TxFrame& frame) = 0;
  virtual bool reaches(const RxChunk& chunk) = 0;
  virtual void send(TxFrame* frame) = 0;
  virtual void receive(RxChunk* chunk) = 0;
  // Makes progress. Not ok: the lane is lost. *left: what nothing announces.
  virtual Status poll(Work* left) = 0;

  // Whether the chunk's memory may still be written (neither a receive straight into place nor a
  // move can be called back).
  virtual bool holds(const RxChunk* chunk) const = 0;
  // Chunks handed to receive() and not yet arrived.
  virtual void each_receiving(const std::function<void(RxChunk*)>& f) const = 0;
  // Their owner has taken them back.
  virtual void forget_receiving() = 0;
  // The region is about to be deregistered and is not in use: nothing of it may stay registered.
  virtual void forget_region(uint64_t id) = 0;
  // Nothing is touched after this, but by moves that were under way: chunks they hold must stay.
  virtual void close() = 0;
  virtual size_t moving() const = 0;
  virtual void look_at_moves() = 0;  // once it is closed

  virtual const char* path() const = 0;
  virtual std::string interface() const = 0;
  virtual CarrierReport report() const = 0;  // any thread
  // The peer has no room for more now: what is not sent meanwhile is not stalled.
  virtual void peer_is_full() = 0;
  // "" or what has not moved for `patience` although it should have.
  virtual std::string stalled(Nanos now, Nanos patience) const = 0;
};

}  // namespace tcpx
