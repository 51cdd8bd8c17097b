// Frames on a lane, after its handshake. Little-endian, fixed 64-byte header.
//
//   header [pieces] [payload trailer]
//
// A lane is an ordered byte stream (or, on other paths, a control stream with payload beside it),
// so frames need no resynchronisation: anything invalid ends the lane.
//
// A chunk of one piece names it in the header; more pieces follow the header as a table. Payload
// is followed by a trailer because a sender may have to give a chunk up when half of it is out
// (cancelled, region deregistered): it then fills up with zeros and says so in the trailer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace tcpx::wire {

inline constexpr uint32_t kFrameMagic = 0x58504354;    // "TCPX" in memory
inline constexpr uint32_t kTrailerMagic = 0x54504354;  // "TCPT"
inline constexpr size_t kHeaderBytes = 64;
inline constexpr size_t kPieceBytes = 24;
inline constexpr size_t kTrailerBytes = 16;
// Bounded by IOV_MAX (1024): header, table, trailer and next header share the vector with pieces.
inline constexpr uint32_t kMaxPieces = 1000;
inline constexpr uint64_t kMaxChunkBytes = 16u << 20;
inline constexpr uint64_t kMaxNotifyBytes = 1u << 30;
// No session agrees on less: a peer must not be able to make us plan a transfer byte by byte.
inline constexpr uint64_t kMinChunkBytes = 4u << 10;
inline constexpr uint64_t kMaxCarrierBytes = 1u << 10;

enum class FrameType : uint8_t {
  kWrite = 1,       // pieces (at the receiver), payload; aux = the receiver's epoch at the post
  kRead = 2,        // the same, no payload; payload_bytes = total asked for
  kData = 3,        // answer to kRead: payload
  kAck = 4,         // answer to kWrite: placed, or `status` says why not
  kReadFailed = 5,  // answer to kRead: `status` says why
  kNotify = 6,      // payload = message; transfer = notification id
  kNotifyAck = 7,   // transfer = notification id, status = a NoticeVerdict
  kLaneDown = 8,    // chunk = index of a lane the sender has given up
  // chunk = index; the lane is closed here, nothing more lands through it. aux = how many
  // kNotifyBehind it brought, transfer = what became of the last 64 (lowest bit: the last one; set:
  // delivered)
  kLaneDownAck = 9,
  kPing = 10,     // aux = anything, transfer = sender's epoch
  kPong = 11,     // aux = that of the ping; transfer = payload bytes received on this lane so far
  kBye = 12,      // orderly end of the session
  kCarrier = 13,  // payload = message between the carriers of a lane (path/carrier.h)
  // payload = message. Directly behind the last one of `chunk` kWrite frames of `transfer`, which
  // followed each other on this lane: it is delivered if they all were placed
  kNotifyBehind = 14,
  kNotifyBehindAck = 15,  // in the order of those; status = a NoticeVerdict
};

// What became of a notification.
enum class NoticeVerdict : uint16_t {
  kDelivered = 0,
  kNotNow = 1,  // not delivered; sent again by itself, later, it may be
  kNever = 2    // it is longer than the receiver takes
};

// A range of one region at the owner: never an address.
struct Piece {
  uint64_t region = 0;  // as its owner described it; means nothing to others
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const Piece&) const = default;
};

struct Header {
  FrameType type{};
  uint8_t flags = 0;           // must be zero
  uint16_t status = 0;         // in answers: a tcpx_code, or what the type says
  uint32_t sequence = 0;       // counts frames on this lane and direction, from 0
  uint64_t transfer = 0;       // chosen by the initiator, unique in the session
  uint32_t chunk = 0;          // index in the transfer
  uint32_t piece_count = 0;    // kWrite, kRead: 1..kMaxPieces; otherwise 0
  uint64_t payload_bytes = 0;  // kWrite, kData, kNotify*: what follows; kRead: what is asked for
  uint64_t aux = 0;
  // The piece if piece_count == 1 (its length is not sent: it is payload_bytes); zero otherwise.
  Piece piece;
  bool operator==(const Header&) const = default;

  bool has_payload() const {
    return type == FrameType::kWrite || type == FrameType::kData || is_notice() ||
           type == FrameType::kCarrier;
  }
  bool is_notice() const { return type == FrameType::kNotify || type == FrameType::kNotifyBehind; }
  // Every one of them was asked for by a frame of the other side.
  bool is_answer() const {
    return type == FrameType::kAck || type == FrameType::kReadFailed ||
           type == FrameType::kNotifyAck || type == FrameType::kNotifyBehindAck ||
           type == FrameType::kLaneDownAck || type == FrameType::kPong;
  }
  bool answers_notice() const {
    return type == FrameType::kNotifyAck || type == FrameType::kNotifyBehindAck;
  }
  NoticeVerdict verdict() const { return static_cast<NoticeVerdict>(status); }
  size_t table_bytes() const { return piece_count > 1 ? piece_count * kPieceBytes : 0; }
};

struct Trailer {
  uint16_t status = 0;    // TCPX_OK, or why the payload is not what was asked for
  uint32_t sequence = 0;  // of the frame it ends
  bool operator==(const Trailer&) const = default;
};

void encode_header(const Header& header, std::span<uint8_t, kHeaderBytes> out);
void encode_pieces(std::span<const Piece> pieces, uint8_t* out);  // pieces.size() * kPieceBytes
void encode_trailer(const Trailer& trailer, std::span<uint8_t, kTrailerBytes> out);

// A code that can say how something ended: a known tcpx_code other than TCPX_IN_PROGRESS, which
// would leave a transfer without an end.
constexpr bool is_result(uint16_t code) {
  return code != TCPX_IN_PROGRESS && code <= static_cast<uint16_t>(TCPX_COPY_FAILED);
}

// What a lane accepts beyond the fixed bounds.
struct Limits {
  uint64_t max_chunk_bytes = kMaxChunkBytes;
  uint64_t max_notify_bytes = kMaxNotifyBytes;
};

// Total functions: any bytes give a valid value or a TCPX_PROTOCOL_ERROR that names the field, with
// blast TCPX_BLAST_LANE. *out is written only on success; success allocates nothing. Whether a
// piece lies in its region is not decided here: that is for the owner, and does not end the lane.
Status decode_header(std::span<const uint8_t, kHeaderBytes> in, const Limits& limits, Header* out);
// `in` holds header.table_bytes(). Checks that lengths add up to header.payload_bytes without
// overflow. Also call it for a single piece (then `in` is empty and out gets header.piece).
// Writes out[0, piece_count), on failure possibly some of them.
Status decode_pieces(const Header& header, std::span<const uint8_t> in, std::span<Piece> out);
Status decode_trailer(std::span<const uint8_t, kTrailerBytes> in, Trailer* out);

}  // namespace tcpx::wire
