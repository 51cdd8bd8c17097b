// Notifications that follow the last chunk of their WRITE on the same lane: what both ends of the
// lane count, alike, to know whether one may. In the exclusive section of the lane's loop.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/transfer.h"

namespace tcpx {

// Chunks of one transfer that followed each other on a lane.
struct ChunksInARow {
  uint64_t transfer = 0;
  uint32_t chunks = 0;

  void add(uint64_t id) {
    chunks = id == transfer ? chunks + 1 : 1;
    transfer = id;
  }
  bool are(uint64_t id, uint32_t count) const {
    return count > 0 && transfer == id && chunks == count;
  }
};

// What a lane brought, and what became of the last ones: for the peer, if our answers are lost with
// the lane.
struct NoticesBrought {
  uint64_t count = 0;
  uint64_t delivered = 0;  // a bit each, the lowest one is the last

  void add(bool was_delivered) {
    ++count;
    delivered = delivered << 1 | (was_delivered ? 1 : 0);
  }
  bool has(uint64_t number) const {
    return number < count && count - 1 - number < 64 &&
           (delivered >> (count - 1 - number) & 1) != 0;
  }
};

struct NoticesBehind {
  // What the peer can tell of a lane that is lost; and what is sent in vain if a chunk was refused.
  static constexpr size_t kMostOut = 64, kLongest = 64u << 10;

  NoticesBehind() { out.reserve(kMostOut); }
  ChunksInARow sent, placed;      // WRITEs, ours and the peer's
  std::vector<NoticeBehind> out;  // without an answer, in order
  uint64_t answered = 0;          // those before them
  NoticesBrought brought;

  // Whether the transfer's notification may follow the chunk that is about to be sent, its last.
  bool may_follow(const TransferState& transfer, size_t notice_bytes) const {
    if (out.size() >= kMostOut || notice_bytes > kLongest) return false;
    auto before = static_cast<uint32_t>(transfer.plan.chunks.size() - 1);
    return before == 0 || sent.are(transfer.id, before);
  }
};

}  // namespace tcpx
