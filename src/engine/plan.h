// The plan of a transfer: descriptor lists -> runs (neighbours joined) -> chunks. Made once, when
// the transfer is prepared; posting it again costs nothing that grows with the pieces.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "memory/region_table.h"
#include "wire/frame.h"

namespace tcpx {

// Adjacent on both sides.
struct Run {
  uint8_t* local;
  wire::Piece remote;  // remote.length is the length of both sides
};

// A slice of the runs, at most the session's chunk size and kMaxPieces pieces, in one place on each
// side.
struct Chunk {
  uint32_t first_run;
  uint32_t pieces;
  uint64_t offset;  // into the first run
  uint64_t bytes;
  Place local, remote;
};

struct Plan {
  tcpx_op op = TCPX_WRITE;
  std::vector<Run> runs;
  std::vector<Chunk> chunks;
  PartRegions regions;                  // the local ones, by run: no run lies in two
  std::vector<uint64_t> local_regions;  // sorted, unique
  uint64_t bytes = 0;
  uint64_t pieces = 0;  // as given
  PlaceMask local_places = 0, remote_places = 0;

  bool uses(uint64_t region) const;
  // Of a WRITE's chunk: where its bytes are read from. They may have to pass through a slot.
  PlaceMask needs_slots(uint32_t chunk) const {
    return op == TCPX_WRITE ? mask_of(chunks[chunk].local) : 0;
  }
  void local_memory(const Chunk& chunk, std::vector<iovec>* out, PartRegions* in) const;
  void remote_pieces(const Chunk& chunk, std::vector<wire::Piece>* out) const;
};

struct PlanRequest {
  tcpx_op op;
  std::span<const tcpx_local_piece> local;
  std::span<const tcpx_remote_piece> remote;
  const uint8_t* remote_engine;  // 16 bytes all remote regions must belong to; null: not known yet
  uint64_t chunk_bytes;
};

Status make_plan(const PlanRequest& request, const RegionTable& regions, Plan* out);

}  // namespace tcpx
