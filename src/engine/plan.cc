#include "engine/plan.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace tcpx {

namespace {

Status check_local(const tcpx_local_piece& piece, size_t index, const RegionView& view) {
  if (piece.offset > view.length || piece.length > view.length - piece.offset)
    return bad_call(TCPX_OUT_OF_RANGE,
                    strf("piece {}: local offset {} + length {} leaves region {:#x} of {} "
                         "bytes",
                         index, piece.offset, piece.length, piece.region, view.length));
  return {};
}

Status check_remote(const PlanRequest& request, size_t index) {
  const tcpx_remote_piece& piece = request.remote[index];
  const tcpx_remote_region* region = piece.region;
  if (region == nullptr)
    return bad_call(TCPX_INVALID_ARGUMENT, strf("piece {}: no remote region given", index));
  if (piece.length != request.local[index].length)
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("piece {}: local length {} and remote length {} differ", index,
                         request.local[index].length, piece.length));
  if (request.remote_engine != nullptr &&
      memcmp(region->engine_id, request.remote_engine, sizeof region->engine_id) != 0)
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("piece {}: the remote region belongs to another engine than this "
                         "peer; import the description this peer exported",
                         index));
  if (region->memory == TCPX_MEMORY_CUDA && region->device >= kMostDevices)
    return bad_call(
        TCPX_INVALID_ARGUMENT,
        strf("piece {}: the remote region lies on cuda:{}; at most {} GPUs are told apart", index,
             region->device, kMostDevices));
  uint32_t needed = request.op == TCPX_WRITE ? TCPX_REMOTE_WRITE : TCPX_REMOTE_READ;
  if ((region->access & needed) == 0)
    return bad_call(TCPX_ACCESS_DENIED,
                    strf("piece {}: the peer did not register region {:#x} for remote {}", index,
                         region->id, request.op == TCPX_WRITE ? "write" : "read"));
  if (piece.offset > region->length || piece.length > region->length - piece.offset)
    return bad_call(TCPX_OUT_OF_RANGE,
                    strf("piece {}: remote offset {} + length {} leaves region {:#x} of {} "
                         "bytes",
                         index, piece.offset, piece.length, region->id, region->length));
  return {};
}

// Runs from `first_run` on, up to the next stretch, lie in these places. `most`: what the owner of
// the remote one takes at a time.
struct Stretch {
  uint32_t first_run;
  Place local, remote;
  uint64_t most;
};

Place place_of(const tcpx_remote_region& region) {
  return {static_cast<Place::Kind>(region.memory), region.device};
}

// As its description says; one that says nothing was not made by the import.
uint64_t most_of(const tcpx_remote_region& region) {
  return region.chunk_bytes == 0 ? wire::kMaxChunkBytes
                                 : std::max<uint64_t>(region.chunk_bytes, wire::kMinChunkBytes);
}

// Most lists are of one stretch.
void enter_stretch(std::vector<Stretch>* stretches, size_t run, Place local,
                   const tcpx_remote_region& region) {
  const Place remote = place_of(region);
  const uint64_t most = most_of(region);
  if (stretches->empty() || stretches->back().local != local ||
      stretches->back().remote != remote || stretches->back().most != most)
    stretches->push_back({static_cast<uint32_t>(run), local, remote, most});
}

// `joins`: with the run before it, if they are neighbours; both lie in the same places and region.
void add_run(Plan* plan, uint8_t* local, const tcpx_remote_piece& piece, bool joins) {
  wire::Piece remote{piece.region->id, piece.offset, piece.length};
  if (joins) {
    Run& last = plan->runs.back();
    if (last.local + last.remote.length == local && last.remote.region == remote.region &&
        last.remote.offset + last.remote.length == remote.offset) {
      last.remote.length += remote.length;
      return;
    }
  }
  plan->runs.push_back({local, remote});
}

// Of one stretch, whose runs end before `end`.
void cut_chunks(Plan* plan, const Stretch& stretch, size_t end, uint64_t chunk_bytes) {
  uint32_t run = stretch.first_run;
  uint64_t offset = 0;
  while (run < end) {
    Chunk chunk{run, 0, offset, 0, stretch.local, stretch.remote};
    while (run < end && chunk.pieces < wire::kMaxPieces) {
      uint64_t room = chunk_bytes - chunk.bytes;
      uint64_t left = plan->runs[run].remote.length - offset;
      if (room == 0 && left > 0) break;
      uint64_t take = std::min(room, left);
      chunk.bytes += take;
      ++chunk.pieces;
      offset += take;
      if (offset < plan->runs[run].remote.length) break;
      ++run;
      offset = 0;
    }
    plan->chunks.push_back(chunk);
  }
}

}  // namespace

bool Plan::uses(uint64_t region) const {
  return std::binary_search(local_regions.begin(), local_regions.end(), region);
}

void Plan::local_memory(const Chunk& chunk, std::vector<iovec>* out, PartRegions* in) const {
  uint64_t left = chunk.bytes;
  uint64_t offset = chunk.offset;
  size_t region = regions.index_of(chunk.first_run);
  for (uint32_t i = 0; i < chunk.pieces; ++i) {
    const Run& run = runs[chunk.first_run + i];
    uint64_t length = std::min(left, run.remote.length - offset);
    if (region + 1 < regions.list.size() && regions.list[region + 1].part <= chunk.first_run + i)
      ++region;
    if (length > 0) {
      in->add(out->size(), regions.list[region].region);
      out->push_back({run.local + offset, length});
    }
    left -= length;
    offset = 0;
  }
}

void Plan::remote_pieces(const Chunk& chunk, std::vector<wire::Piece>* out) const {
  uint64_t left = chunk.bytes;
  uint64_t offset = chunk.offset;
  for (uint32_t i = 0; i < chunk.pieces; ++i) {
    wire::Piece piece = runs[chunk.first_run + i].remote;
    piece.offset += offset;
    piece.length = std::min(left, piece.length - offset);
    out->push_back(piece);
    left -= piece.length;
    offset = 0;
  }
}

Status make_plan(const PlanRequest& request, const RegionTable& regions, Plan* out) {
  Plan plan;
  plan.op = request.op;
  plan.pieces = request.local.size();
  plan.runs.reserve(request.local.size());
  std::vector<Stretch> stretches;
  uint64_t known_region = 0;
  RegionView view;
  for (size_t i = 0; i < request.local.size(); ++i) {
    const tcpx_local_piece& piece = request.local[i];
    if (piece.region != known_region) {  // lists mostly stay in one region: look it up once
      if (Status status = regions.describe(piece.region, &view); !status)
        return bad_call(status.code(), strf("piece {}: local {}", i, status.text()));
      known_region = piece.region;
      plan.local_regions.push_back(piece.region);
    }
    if (Status status = check_local(piece, i, view); !status) return status;
    if (Status status = check_remote(request, i); !status) return status;
    if (piece.length > UINT64_MAX - plan.bytes)
      return bad_call(TCPX_OUT_OF_RANGE, "the pieces' lengths overflow 64 bits");
    plan.bytes += piece.length;
    if (piece.length == 0) continue;
    size_t runs = plan.runs.size();
    enter_stretch(&stretches, runs, view.place, *request.remote[i].region);
    plan.regions.add(runs, {piece.region, view.base, view.length});
    add_run(&plan, view.base + piece.offset, request.remote[i],
            stretches.back().first_run < runs && plan.regions.list.back().part < runs);
  }
  // Nothing to move still goes to the owner once: "done" then says the same as for one byte.
  if (plan.runs.empty()) {
    enter_stretch(&stretches, 0, view.place, *request.remote[0].region);
    add_run(&plan, nullptr, request.remote[0], false);
  }
  std::sort(plan.local_regions.begin(), plan.local_regions.end());
  plan.local_regions.erase(std::unique(plan.local_regions.begin(), plan.local_regions.end()),
                           plan.local_regions.end());
  for (size_t i = 0; i < stretches.size(); ++i) {
    bool last = i + 1 == stretches.size();
    uint64_t most = std::min(stretches[i].most, request.chunk_bytes);
    if (!stretches[i].local.is_host() || !stretches[i].remote.is_host())
      most = std::min(most, request.gpu_chunk_bytes);
    if (request.movers != nullptr)
      most = std::min(most, request.movers->most_at_a_time(stretches[i].local));
    cut_chunks(&plan, stretches[i], last ? plan.runs.size() : stretches[i + 1].first_run, most);
    plan.local_places |= mask_of(stretches[i].local);
    plan.remote_places |= mask_of(stretches[i].remote);
  }
  if (plan.chunks.size() > UINT32_MAX)
    return bad_call(TCPX_LIMIT, "more than 2^32 chunks; use a larger chunk_bytes");
  *out = std::move(plan);
  return {};
}

}  // namespace tcpx
