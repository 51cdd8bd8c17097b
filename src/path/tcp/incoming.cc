#include "path/tcp/incoming.h"

#include <algorithm>

namespace tcpx {

Incoming::Incoming() {
  pieces.reserve(wire::kMaxPieces);
  table.reserve(64 * wire::kPieceBytes);
}

size_t Incoming::gather(iovec* iov, size_t* bytes) {
  size_t count = 0;
  *bytes = 0;
  bool complete = true;  // everything before `ahead` is in the vector
  if (phase == Phase::kTable) {
    iov[count++] = {table.data() + table_got, table.size() - table_got};
    *bytes = table.size() - table_got;
    complete = !header.has_payload();  // else payload follows, and we do not know where it goes
  } else if (in_payload() && payload_left > 0) {
    for (size_t i = landing_at; i < chunk->landing.size() && count < kMaxIov; ++i) {
      iov[count++] = chunk->landing[i];
      *bytes += chunk->landing[i].iov_len;
    }
    complete = *bytes == payload_left;
  }
  if (complete) {
    iov[count++] = {ahead + ahead_got, sizeof ahead - ahead_got};
    *bytes += sizeof ahead - ahead_got;
  }
  return count;
}

void Incoming::table_follows() {
  table.resize(header.table_bytes());
  table_got = 0;
  phase = Phase::kTable;
}

void Incoming::payload_follows() {
  phase = Phase::kPayload;
  payload_left = header.payload_bytes;
}

// Nothing behind the head was asked for: there is room for the trailer and the next header.
void Incoming::lands_in(RxChunk* where) {
  chunk = where;
  landing_at = 0;
  ahead_got = 0;
}

size_t Incoming::take_table(size_t bytes) {
  const size_t part = std::min(bytes, table.size() - table_got);
  table_got += part;
  return part;
}

size_t Incoming::take_payload(size_t bytes) {
  const size_t part = std::min<uint64_t>(bytes, payload_left);
  payload_left -= part;
  if (chunk->dropped()) return part;
  for (size_t left = part; left > 0;) {
    iovec& to = chunk->landing[landing_at];
    const size_t step = std::min(left, to.iov_len);
    to.iov_base = static_cast<uint8_t*>(to.iov_base) + step;
    to.iov_len -= step;
    left -= step;
    if (to.iov_len == 0) ++landing_at;
  }
  return part;
}

}  // namespace tcpx
