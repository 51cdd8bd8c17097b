// The frame that a stream is in the middle of: what has come of it, and where the next bytes
// belong. Knows no socket and no meaning of frames.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "path/lane.h"

namespace tcpx {

struct Incoming {
  enum class Phase { kHeader, kTable, kPayload };
  static constexpr size_t kMaxIov = 256;

  Incoming();

  bool in_payload() const { return phase == Phase::kPayload; }
  // Payload that nobody wants comes next.
  bool discards() const { return in_payload() && payload_left > 0 && chunk->dropped(); }
  // Where the next bytes belong: the rest of this payload and, behind it, `ahead`. Not of payload
  // that is discarded. `iov` has room for one more than kMaxIov.
  size_t gather(iovec* iov, size_t* bytes);
  void header_follows() { phase = Phase::kHeader; }
  void table_follows();
  // Where it lands is still to be said.
  void payload_follows();
  void lands_in(RxChunk* where);
  // So many bytes of the table or of the payload have come; how many there were.
  size_t take_table(size_t bytes);
  size_t take_payload(size_t bytes);
  bool table_is_here() const { return table_got == table.size(); }
  bool landing_is_full() const { return landing_at == chunk->landing.size(); }
  bool trailer_is_here() const {
    return in_payload() && payload_left == 0 && ahead_got >= wire::kTrailerBytes;
  }
  bool header_is_here() const { return phase == Phase::kHeader && ahead_got == sizeof ahead; }

  Phase phase = Phase::kHeader;
  // The trailer of the current frame, if it has one, and the next header.
  uint8_t ahead[wire::kTrailerBytes + wire::kHeaderBytes];
  size_t ahead_got = wire::kTrailerBytes;
  wire::Header header;
  std::vector<uint8_t> table;
  size_t table_got = 0;
  std::vector<wire::Piece> pieces;
  RxChunk* chunk = nullptr;
  uint64_t payload_left = 0;
  size_t landing_at = 0;
  uint32_t next_sequence = 0;
};

}  // namespace tcpx
