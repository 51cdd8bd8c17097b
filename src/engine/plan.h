// The plan of a transfer: descriptor lists -> runs (neighbours joined) -> chunks. Made once, when
// the transfer is prepared; posting it again costs nothing that grows with the pieces.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "memory/mover.h"
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

// The GPUs that a chunk touches, at this end and at the other; none: it is of host memory only.
struct GpusTouched {
  PlaceMask here = 0, there = 0;
  bool none() const { return (here | there) == 0; }
  bool operator==(const GpusTouched&) const = default;
};

// Chunks of which a lane takes no more now.
struct NoMoreOf {
  PlaceMask slots = 0;  // WRITEs out of these places: there is no slot for them
  GpusTouched gpus{};   // what touches these GPUs
  bool host = false;    // what touches no GPU

  bool none() const { return slots == 0 && gpus.none() && !host; }
  bool operator==(const NoMoreOf&) const = default;
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
  GpusTouched gpus_of(uint32_t chunk) const {
    return {mask_of(chunks[chunk].local) & kGpuBits, mask_of(chunks[chunk].remote) & kGpuBits};
  }
  bool touches_gpus() const { return ((local_places | remote_places) & kGpuBits) != 0; }
  // A WRITE's bytes are read here, and may have to pass through a slot before they leave.
  bool lacks_slot(uint32_t chunk, PlaceMask starved) const {
    return op == TCPX_WRITE && (mask_of(chunks[chunk].local) & starved) != 0;
  }
  bool is_of(uint32_t chunk, const NoMoreOf& no_more) const {
    const GpusTouched gpus = gpus_of(chunk);
    if (lacks_slot(chunk, no_more.slots)) return true;
    if (gpus.none()) return no_more.host;
    return (gpus.here & no_more.gpus.here) != 0 || (gpus.there & no_more.gpus.there) != 0;
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
  const Movers* movers = nullptr;         // know the longest chunk of a place of ours; null: any
  uint64_t gpu_chunk_bytes = UINT64_MAX;  // of chunks with an end in a GPU's memory
};

Status make_plan(const PlanRequest& request, const RegionTable& regions, Plan* out);

}  // namespace tcpx
