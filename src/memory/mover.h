// Bytes between memory and slots, and out of pools of fragments into memory. A lane sends from and
// receives into what it can reach: where a region lies elsewhere, or in a way that the lane cannot
// use, its bytes pass through a slot, out of the memory before they leave, into it after they
// arrived. What a net plugin has received in fragments is unpacked straight into the memory.
//
// A move is begun and looked at; it takes its time, cannot be called back once it touches memory,
// and while it runs it touches the memory: fences wait for it (engine/lane_moves.h,
// path/net/receive_comm.h).
//
// One mover per loop, used in its exclusive section only: no locks.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "memory/fragments.h"
#include "memory/place.h"
#include "memory/region_extent.h"

namespace tcpx {

enum class MoveState : uint8_t { kRunning, kDone, kFailed };

// What a move took, and how it failed.
struct MoveEnd {
  std::string why;             // in words; "": it did not fail
  uint32_t copies = 0;         // that a copy engine was asked for
  uint32_t kernels = 0;        // that were launched
  bool lacked_kernel = false;  // it has many pieces, and was copied one by one all the same
  // When it was begun here, when whoever does it had all of it (0: never), and when it was seen to
  // be over. All 0 where nobody asks for them.
  Nanos begun = 0, submitted = 0, over = 0;

  bool failed() const { return !why.empty(); }
};

// Chunks that leave must not keep those that arrive from their slots, nor the other way round: two
// engines that write to each other would wait for ever.
enum class SlotUse : uint8_t { kSend, kReceive };

// Fragments of a pool to [offset, ...) of the memory. They cover what they make up exactly once.
struct Unpacking {
  std::span<const Fragment> fragments;
  const uint8_t* pool = nullptr;
  std::span<const iovec> memory;
  uint64_t offset = 0;
  Place place{};
};

// Who begins moves and looks at them: a loop.
class MoveWatcher {
 public:
  // Whether it looks by itself now. Any thread.
  virtual bool looks() const noexcept = 0;
  // Has it look. Any thread; takes no lock, and waits for nothing.
  virtual void look_now() noexcept = 0;

 protected:
  ~MoveWatcher() = default;
};

class Mover {
 public:
  virtual ~Mover() = default;

  // Places whose bytes pass through a slot whatever the lane could do with them, and of which there
  // is memory. It may grow at any time.
  virtual PlaceMask staged() const = 0;
  // Places it can move to and from.
  virtual PlaceMask serves() const { return kHostBit | staged(); }

  // Slots belong to a place: what one GPU is short of, another may have.
  virtual size_t free_slots(SlotUse use, const Place& place) = 0;
  // Memory for one chunk that lanes of this loop reach; nullptr: none is free now.
  virtual uint8_t* take_slot(SlotUse use, uint64_t bytes, const Place& place) = 0;
  // What a slot holds at the most: a chunk of more never gets one.
  virtual uint64_t most_bytes(const Place&) { return UINT64_MAX; }
  virtual void give_slot(SlotUse use, uint8_t* slot) = 0;
  // Ordinary memory to receive one chunk into, where slots of its place do not come back; nullptr:
  // there is none. begin_in takes it as it takes a slot, and copies it through one when there is
  // one. So a copy more, and for a while only.
  virtual uint8_t* take_spare(uint64_t, const Place&) { return nullptr; }
  virtual void give_spare(uint8_t*, const Place&) {}
  virtual Place slot_place() const { return {}; }
  // What to register with a plugin so that it reaches the slot: whole pages, perhaps of other slots
  // too, that stay as long as the mover. The id is smaller than any region's.
  virtual RegionExtent slot_extent(const uint8_t* slot) const = 0;

  // Begin to move, all of `memory` in `place`; a ticket that is not 0. Nothing blocks. `memory`,
  // the slot, the fragments and their pool stay as they are until the move is over. Several may be
  // under way; they end in any order. Host memory is a place that every mover serves.
  virtual uint64_t begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) = 0;
  virtual uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory,
                            const Place& place) = 0;
  virtual uint64_t begin_unpack(const Unpacking& what) = 0;
  // Once it is not running the ticket is worth nothing any more, and `end` is told. Done: the bytes
  // are there for whoever looks. Failed: the destination may hold anything.
  virtual MoveState look(uint64_t ticket, MoveEnd* end) = 0;
  // A move out of spare memory that still waits for a slot, and has touched nothing: it is not
  // begun, and the ticket is worth nothing any more. False: it is any other.
  virtual bool take_back(uint64_t) { return false; }
  // Moves go on only while they are looked at, a little each time: whoever has one looks again at
  // once, and no other thread is in the memory between two looks.
  virtual bool by_hand() const { return false; }
  // Called when the watcher does not look any more by itself, with moves under way. True: it is
  // told when one is over, and once in a while; false: it has to look.
  virtual bool tells() { return false; }
  // The watcher is about to go.
  virtual void tell_nobody() noexcept {}
};

// What a loop's lanes do with their payload: it goes through their streams, or beside them through
// a net plugin, which takes slots of a kind of its own and wants to be called often.
enum class MoverFor : uint8_t { kStreams, kBeside };

// What an engine that moves more than host memory is made with; outlives it.
class Movers {
 public:
  virtual ~Movers() = default;
  // Memory that is about to be registered, or is there again: makes ready to move it, or says why
  // it cannot be moved.
  virtual Status admit(const void* base, uint64_t length, const Place& place) = 0;
  // The longest chunk of memory of this place, whatever a peer would like.
  virtual uint64_t most_at_a_time(const Place&) const { return UINT64_MAX; }
  // kStreams: null where lanes reach all that is served by themselves.
  // `watcher` outlives the mover.
  virtual std::unique_ptr<Mover> make(MoverFor use, MoveWatcher& watcher) = 0;
};

}  // namespace tcpx
