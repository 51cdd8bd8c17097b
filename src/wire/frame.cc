#include "wire/frame.h"

#include <algorithm>
#include <array>

#include "wire/bytes.h"
#include "wire/handshake.h"
#include "wire/protocol_error.h"

// Header, 64 bytes                        Piece in the table, 24 bytes
//   offset size field                       offset size field
//        0    4 magic "TCPX"                     0    8 region
//        4    1 type                             8    8 offset
//        5    1 flags, zero                     16    8 length
//        6    2 status
//        8    4 sequence
//       12    4 chunk                       Trailer, 16 bytes
//       16    8 transfer                      offset size field
//       24    8 payload_bytes                      0    4 magic "TCPT"
//       32    8 aux                                4    2 status
//       40    4 piece_count                        6    2 reserved, zero
//       44    8 piece.region                       8    4 sequence
//                                                 12    4 reserved, zero
//       52    4 reserved, zero
//       56    8 piece.offset
//
// The length of a single piece is not sent: it could only repeat payload_bytes or contradict it.

namespace tcpx::wire {
namespace {

// The fields a type may use; all others are zero.
enum Field : uint8_t {
  kStatus = 1,
  kTransfer = 2,
  kChunk = 4,
  kPieces = 8,
  kPayload = 16,
  kAux = 32,
};

struct Rule {
  const char* name;
  uint8_t fields;
};

constexpr std::array<Rule, 16> kRules = {{
    {"", 0},
    {"write", kTransfer | kChunk | kPieces | kPayload | kAux},
    {"read", kTransfer | kChunk | kPieces | kPayload | kAux},
    {"data", kTransfer | kChunk | kPayload},
    {"ack", kStatus | kTransfer | kChunk},
    {"read failed", kStatus | kTransfer | kChunk},
    {"notify", kTransfer | kPayload},
    {"notify ack", kStatus | kTransfer},
    {"lane down", kChunk},
    {"lane down ack", kChunk | kTransfer | kAux},
    {"ping", kTransfer | kAux},
    {"pong", kTransfer | kAux},
    {"bye", 0},
    {"carrier", kPayload},
    {"notify behind", kTransfer | kChunk | kPayload},
    {"notify behind ack", kStatus | kTransfer},
}};
static_assert(kRules.size() == static_cast<size_t>(FrameType::kNotifyBehindAck) + 1);

const char* name_of(const Header& header) {
  return kRules[static_cast<size_t>(header.type)].name;
}

// The first field that is set although its type does not use it, or nullptr.
const char* surplus_field(const Header& h) {
  const uint8_t fields = kRules[static_cast<size_t>(h.type)].fields;
  if (h.status != 0 && !(fields & kStatus)) return "status";
  if (h.transfer != 0 && !(fields & kTransfer)) return "transfer";
  if (h.chunk != 0 && !(fields & kChunk)) return "chunk";
  if (h.piece_count != 0 && !(fields & kPieces)) return "piece_count";
  if (h.payload_bytes != 0 && !(fields & kPayload)) return "payload_bytes";
  if (h.aux != 0 && !(fields & kAux)) return "aux";
  const bool piece = h.piece.region != 0 || h.piece.offset != 0;
  if (piece && h.piece_count != 1) return "piece";
  return nullptr;
}

Status check_values(const Header& h, const Limits& limits) {
  const uint8_t fields = kRules[static_cast<size_t>(h.type)].fields;
  if ((fields & kPieces) && (h.piece_count < 1 || h.piece_count > kMaxPieces)) {
    return bad("{} frame: piece_count is {}, allowed are 1 to {}", name_of(h), h.piece_count,
               kMaxPieces);
  }
  const uint64_t most = h.is_notice() ? limits.max_notify_bytes
                        : h.type == FrameType::kCarrier
                            ? kMaxCarrierBytes
                            : std::min(limits.max_chunk_bytes, kMaxChunkBytes);
  if (h.payload_bytes > most) {
    return bad("{} frame: payload_bytes is {}, at most {} are allowed", name_of(h), h.payload_bytes,
               most);
  }
  if (h.answers_notice()) {
    if (h.status > static_cast<uint16_t>(NoticeVerdict::kNever))
      return bad("{} frame: status {} is no verdict", name_of(h), h.status);
  } else if (!is_result(h.status)) {
    return bad("{} frame: status {} is no result", name_of(h), h.status);
  }
  if (h.type == FrameType::kReadFailed && h.status == TCPX_OK) {
    return bad("{} frame: status says that it did not fail", name_of(h));
  }
  const bool names_lane = h.type == FrameType::kLaneDown || h.type == FrameType::kLaneDownAck;
  if (names_lane && h.chunk >= kMaxLanes) {
    return bad("{} frame: lane {} cannot exist, there are at most {}", name_of(h), h.chunk,
               kMaxLanes);
  }
  return {};
}

}  // namespace

void encode_header(const Header& header, std::span<uint8_t, kHeaderBytes> out) {
  const Piece piece = header.piece_count == 1 ? header.piece : Piece{};
  put<0>(out, kFrameMagic);
  put<4>(out, static_cast<uint8_t>(header.type));
  put<5>(out, header.flags);
  put<6>(out, header.status);
  put<8>(out, header.sequence);
  put<12>(out, header.chunk);
  put<16>(out, header.transfer);
  put<24>(out, header.payload_bytes);
  put<32>(out, header.aux);
  put<40>(out, header.piece_count);
  put<44>(out, piece.region);
  put<52>(out, uint32_t{0});
  put<56>(out, piece.offset);
}

void encode_pieces(std::span<const Piece> pieces, uint8_t* out) {
  for (const Piece& piece : pieces) {
    const std::span<uint8_t, kPieceBytes> entry(out, kPieceBytes);
    put<0>(entry, piece.region);
    put<8>(entry, piece.offset);
    put<16>(entry, piece.length);
    out += kPieceBytes;
  }
}

void encode_trailer(const Trailer& trailer, std::span<uint8_t, kTrailerBytes> out) {
  put<0>(out, kTrailerMagic);
  put<4>(out, trailer.status);
  put<6>(out, uint16_t{0});
  put<8>(out, trailer.sequence);
  put<12>(out, uint32_t{0});
}

Status decode_header(std::span<const uint8_t, kHeaderBytes> in, const Limits& limits, Header* out) {
  const auto magic = get<uint32_t, 0>(in);
  if (magic != kFrameMagic) return bad("no frame starts here: magic is {:#010x}", magic);
  const auto type = get<uint8_t, 4>(in);
  if (type == 0 || type >= kRules.size()) return bad("unknown frame type {}", type);

  Header h;
  h.type = static_cast<FrameType>(type);
  h.flags = get<uint8_t, 5>(in);
  h.status = get<uint16_t, 6>(in);
  h.sequence = get<uint32_t, 8>(in);
  h.chunk = get<uint32_t, 12>(in);
  h.transfer = get<uint64_t, 16>(in);
  h.payload_bytes = get<uint64_t, 24>(in);
  h.aux = get<uint64_t, 32>(in);
  h.piece_count = get<uint32_t, 40>(in);
  h.piece.region = get<uint64_t, 44>(in);
  h.piece.offset = get<uint64_t, 56>(in);

  if (h.flags != 0) return bad("{} frame: flags {:#04x} are unknown", name_of(h), h.flags);
  if (get<uint32_t, 52>(in) != 0) return bad("{} frame: reserved bytes are set", name_of(h));
  if (const char* field = surplus_field(h)) {
    return bad("{} frame: {} must be zero", name_of(h), field);
  }
  if (Status status = check_values(h, limits); !status) return status;
  if (h.piece_count == 1) h.piece.length = h.payload_bytes;
  *out = h;
  return {};
}

Status decode_pieces(const Header& header, std::span<const uint8_t> in, std::span<Piece> out) {
  if (in.size() != header.table_bytes()) {
    return bad("piece table has {} bytes for {} pieces", in.size(), header.piece_count);
  }
  if (out.size() < header.piece_count) {
    return bad("{} pieces do not fit into {}", header.piece_count, out.size());
  }
  if (header.piece_count == 0) return {};
  if (header.piece_count == 1) {
    if (header.piece.length != header.payload_bytes) {
      return bad("piece has {} bytes, payload_bytes is {}", header.piece.length,
                 header.payload_bytes);
    }
    out[0] = header.piece;
    return {};
  }
  uint64_t left = header.payload_bytes;  // counts down: a sum of 64-bit lengths could wrap
  for (uint32_t i = 0; i < header.piece_count; ++i) {
    const std::span<const uint8_t, kPieceBytes> entry(in.data() + i * kPieceBytes, kPieceBytes);
    Piece piece;
    piece.region = get<uint64_t, 0>(entry);
    piece.offset = get<uint64_t, 8>(entry);
    piece.length = get<uint64_t, 16>(entry);
    if (piece.length > left) return bad("piece {}: lengths exceed payload_bytes", i);
    left -= piece.length;
    out[i] = piece;
  }
  if (left != 0) return bad("lengths of pieces are {} bytes short of payload_bytes", left);
  return {};
}

Status decode_trailer(std::span<const uint8_t, kTrailerBytes> in, Trailer* out) {
  const auto magic = get<uint32_t, 0>(in);
  if (magic != kTrailerMagic) return bad("no trailer after the payload: magic is {:#010x}", magic);
  const auto status = get<uint16_t, 4>(in);
  if (!is_result(status)) return bad("trailer: status {} is no result", status);
  if (get<uint16_t, 6>(in) != 0 || get<uint32_t, 12>(in) != 0) {
    return bad("trailer: reserved bytes are set");
  }
  *out = Trailer{status, get<uint32_t, 8>(in)};
  return {};
}

}  // namespace tcpx::wire
