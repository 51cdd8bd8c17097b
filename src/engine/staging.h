// What became of a transfer's chunks between memory and slots, on this side: for its receipt. Times
// are by the wall clock: chunks that wait at the same time wait once. So none is longer than the
// transfer, and each says how much of it that wait went on for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "engine/lane_bits.h"
#include "memory/mover.h"

namespace tcpx {

// How much time spans cover together. They come in about the order in which they end, but loops
// tell late: where one begins before all of the last stretch, what it covers further back is left
// out. Never more than the truth.
class WallTime {
 public:
  void add(Nanos from, Nanos until) {
    from = std::max(from, settled_until_);
    if (until <= from) return;
    if (from > until_) {  // a stretch of its own, behind all others
      settled_until_ = until_;
      sum_ += until_ - from_;
      from_ = from;
      until_ = until;
    } else if (until < from_) {  // or before the last one
      sum_ += until - from;
      settled_until_ = until;
    } else {
      from_ = std::min(from_, from);
      until_ = std::max(until_, until);
    }
  }
  Nanos sum() const { return sum_ + (until_ - from_); }

 private:
  Nanos from_ = 0, until_ = 0;  // the last stretch
  Nanos settled_until_ = 0;     // the end of those before it
  Nanos sum_ = 0;               // of those
};

// The time in which a chunk could not go on for want of a slot: one in the queue that a lane would
// have taken, or one that a lane has.
class SlotWait {
 public:
  bool is_wanted_by(uint32_t lane) const { return wanting_.has(lane); }
  void wanted_by(uint32_t lane, Nanos now) {
    begin(now);
    wanting_.add(lane);
  }
  void not_wanted_by(uint32_t lane, Nanos now) {
    if (!wanting_.has(lane)) return;
    wanting_.remove(lane);
    end(now);
  }
  bool wanted() const { return !wanting_.empty(); }
  void not_wanted(Nanos now) {
    wanting_ = {};
    end(now);
  }
  void one_more_without(Nanos now) {
    begin(now);
    ++without_;
  }
  void one_less_without(Nanos now) {
    --without_;
    end(now);
  }
  // The transfer is over.
  void stop(Nanos now) {
    if (!waits()) return;
    wanting_ = {};
    without_ = 0;
    end(now);
  }
  Nanos sum(Nanos now) const { return sum_ + (waits() ? now - since_ : 0); }

 private:
  bool waits() const { return without_ > 0 || !wanting_.empty(); }
  void begin(Nanos now) {
    if (!waits()) since_ = last_end_ = now;
  }
  // Of one that a lane tells late others may have waited longer.
  void end(Nanos now) {
    last_end_ = std::max(last_end_, now);
    if (!waits()) sum_ += last_end_ - since_;
  }

  LaneBits wanting_;      // that would take one from the queue
  uint32_t without_ = 0;  // chunks at lanes
  Nanos since_ = 0, last_end_ = 0, sum_ = 0;
};

struct Staging {
  uint64_t bytes = 0;
  uint64_t copies = 0, kernels = 0, kernels_missing = 0;
  SlotWait slots;
  WallTime submitting, moving;

  void add(const MoveEnd& move, uint64_t moved_bytes) {
    if (!move.failed()) bytes += moved_bytes;
    copies += move.copies;
    kernels += move.kernels;
    kernels_missing += move.lacked_kernel;
    // What nobody began was waited for to its end.
    submitting.add(move.begun, move.submitted != 0 ? move.submitted : move.over);
    if (move.submitted != 0) moving.add(move.submitted, move.over);
  }
};

}  // namespace tcpx
