// Placing: the step between "payload arrived" and "bytes are where they belong". For host memory
// on the tcp path the lane receives straight into place and nothing is left to do; elsewhere
// payload lands in staging memory and a copy (later: a kernel, watched by an event) finishes it.
// The engine is written for the second case: it acknowledges and releases only after finished().
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "memory/place.h"

namespace tcpx {

class Placer {
 public:
  virtual ~Placer() = default;

  // Whether memory of this place may be registered with the engine.
  virtual bool serves(const Place& place) const { return place.is_host(); }

  // Staging for one chunk, or nullptr when none is free (the lane stops reading until one is).
  // A placer that lets the lane receive into the destination returns false from stages().
  virtual bool stages() const = 0;
  virtual uint8_t* acquire(uint64_t bytes) = 0;
  // Starts moving from staging to the destinations and returns a ticket that is not 0; must not
  // block. The spans stay valid until release().
  virtual uint64_t start(const uint8_t* staging, std::span<const iovec> destination) = 0;
  // Whether the move started under this ticket is finished and visible. Must not block.
  virtual bool finished(uint64_t ticket) = 0;
  virtual void release(uint8_t* staging) = 0;
};

}  // namespace tcpx
