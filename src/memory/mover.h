// Bytes between memory and slots. A lane sends from and receives into host memory: where a region
// lies elsewhere its bytes pass through a slot, out of the memory before they leave, into it after
// they arrived. For host memory on the tcp path there is no mover and nothing to move.
//
// A move is begun and looked at; it takes its time, cannot be called back, and while it runs it
// touches the memory: fences wait for it (engine/lane_moves.h).
//
// One mover per loop, used in its exclusive section only: no locks.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "memory/place.h"

namespace tcpx {

enum class MoveState : uint8_t { kRunning, kDone, kFailed };

// Chunks that leave must not keep those that arrive from their slots, nor the other way round: two
// engines that write to each other would wait for ever.
enum class SlotUse : uint8_t { kSend, kReceive };

class Mover {
 public:
  virtual ~Mover() = default;

  // Whether bytes of this place pass through a slot; else lanes use the memory itself.
  virtual bool stages(const Place& place) const = 0;

  virtual size_t free_slots(SlotUse use) const = 0;
  // Host memory for one chunk; nullptr: none is free now.
  virtual uint8_t* take_slot(SlotUse use, uint64_t bytes) = 0;
  virtual void give_slot(SlotUse use, uint8_t* slot) = 0;

  // Begin to move, all of `memory` in `place`; a ticket that is not 0. Nothing blocks. `memory` and
  // the slot stay as they are until the move is over.
  virtual uint64_t begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) = 0;
  virtual uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory,
                            const Place& place) = 0;
  // Once it is not running the ticket is worth nothing any more. Done: the bytes are there for
  // whoever looks. Failed: `why` says in words what happened; the destination may hold anything.
  virtual MoveState look(uint64_t ticket, std::string* why) = 0;
};

// What an engine that moves more than host memory is made with; outlives it.
class Movers {
 public:
  virtual ~Movers() = default;
  // Whether memory of this place may be registered.
  virtual bool serves(const Place& place) const = 0;
  virtual std::unique_ptr<Mover> make() = 0;
};

}  // namespace tcpx
