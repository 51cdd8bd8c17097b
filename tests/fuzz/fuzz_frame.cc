// A lane's receiver fed with an arbitrary byte stream: header, table, payload, trailer, next
// header.
//
// input: 4 bytes of limits, then the stream. The limits are part of the input because a stream that
// is right for one session is wrong for another. Payload is shortened to kPayloadInInput bytes:
// nobody looks at it here, and inputs stay small.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz_check.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/handshake.h"

namespace {

using namespace tcpx;
using namespace tcpx::wire;

constexpr uint64_t kPayloadInInput = 8;

void check_error(const Status& status) {
  FUZZ_CHECK(status.code() == TCPX_PROTOCOL_ERROR);
  FUZZ_CHECK(status.blast() == TCPX_BLAST_LANE);
  FUZZ_CHECK(!status.text().empty());
}

// What the lane and the engine rely on after decode_header said yes.
void check_header(const Header& h, const Limits& limits) {
  const auto type = static_cast<uint8_t>(h.type);
  FUZZ_CHECK(type >= 1 && type <= static_cast<uint8_t>(FrameType::kNotifyBehindAck));
  FUZZ_CHECK(h.flags == 0);
  if (h.answers_notice())
    FUZZ_CHECK(h.status <= static_cast<uint16_t>(NoticeVerdict::kNever));
  else
    FUZZ_CHECK(is_result(h.status));
  const bool carries_pieces = h.type == FrameType::kWrite || h.type == FrameType::kRead;
  FUZZ_CHECK(carries_pieces ? h.piece_count >= 1 && h.piece_count <= kMaxPieces
                            : h.piece_count == 0);
  FUZZ_CHECK(h.table_bytes() <= kMaxPieces * kPieceBytes);
  FUZZ_CHECK(h.payload_bytes <= (h.is_notice() ? limits.max_notify_bytes
                                               : std::min(limits.max_chunk_bytes, kMaxChunkBytes)));
  if (!h.has_payload() && h.type != FrameType::kRead) FUZZ_CHECK(h.payload_bytes == 0);
  if (h.piece_count != 1) FUZZ_CHECK(h.piece == Piece{});
  if (h.type == FrameType::kReadFailed) FUZZ_CHECK(h.status != TCPX_OK);
  if (h.type == FrameType::kLaneDown) FUZZ_CHECK(h.chunk < kMaxLanes);
}

// Every accepted header has exactly one encoding: the bytes it came from.
void check_canonical(std::span<const uint8_t, kHeaderBytes> bytes, const Header& header,
                     const Limits& limits) {
  std::array<uint8_t, kHeaderBytes> again;
  again.fill(0xee);
  encode_header(header, again);
  FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin()));
  Header twice;
  FUZZ_CHECK(decode_header(again, limits, &twice).ok());
  FUZZ_CHECK(twice == header);
}

// False: the lane would end here.
bool take_pieces(const Header& header, Reader* stream) {
  std::span<const uint8_t> table;
  if (!stream->take(header.table_bytes(), &table)) return false;
  std::vector<Piece> pieces(header.piece_count);
  if (Status status = decode_pieces(header, table, pieces); !status) {
    check_error(status);
    return false;
  }
  uint64_t sum = 0;
  for (const Piece& piece : pieces) {
    FUZZ_CHECK(piece.length <= header.payload_bytes - sum);
    sum += piece.length;
  }
  if (header.piece_count > 0) FUZZ_CHECK(sum == header.payload_bytes);
  if (header.piece_count > 1) {
    std::vector<uint8_t> again(header.table_bytes());
    encode_pieces(pieces, again.data());
    FUZZ_CHECK(std::equal(again.begin(), again.end(), table.begin(), table.end()));
  }
  return true;
}

bool take_payload(const Header& header, Reader* stream) {
  std::span<const uint8_t> bytes;
  if (!stream->take(std::min<uint64_t>(header.payload_bytes, kPayloadInInput), &bytes))
    return false;
  if (!stream->take(kTrailerBytes, &bytes)) return false;
  Trailer trailer;
  if (Status status = decode_trailer(bytes.first<kTrailerBytes>(), &trailer); !status) {
    check_error(status);
    return false;
  }
  FUZZ_CHECK(is_result(trailer.status));
  std::array<uint8_t, kTrailerBytes> again;
  again.fill(0xee);
  encode_trailer(trailer, again);
  FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin()));
  return true;
}

bool take_frame(const Limits& limits, Reader* stream) {
  std::span<const uint8_t> bytes;
  if (!stream->take(kHeaderBytes, &bytes)) return false;
  const Header untouched{.type = FrameType::kPing, .aux = 42};
  Header header = untouched;
  if (Status status = decode_header(bytes.first<kHeaderBytes>(), limits, &header); !status) {
    check_error(status);
    FUZZ_CHECK(header == untouched);
    return false;
  }
  check_header(header, limits);
  check_canonical(bytes.first<kHeaderBytes>(), header, limits);
  if (!take_pieces(header, stream)) return false;
  return !header.has_payload() || take_payload(header, stream);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const std::span<const uint8_t, 4> head(data, 4);
  Limits limits;
  limits.max_chunk_bytes = uint64_t{get<uint16_t, 0>(head)} << 10;  // also above kMaxChunkBytes
  limits.max_notify_bytes = uint64_t{get<uint16_t, 2>(head)};
  Reader stream(std::span(data, size).subspan(4));
  while (take_frame(limits, &stream)) {
  }
  return 0;
}
