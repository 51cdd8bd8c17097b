#include "engine/engine.h"

#include <algorithm>

#include "base/caught.h"
#include "engine/goodbye.h"

namespace tcpx {

namespace {

constexpr Nanos kTick = 20 * kMilli;
constexpr Nanos kIdleTick = 250 * kMilli;

}  // namespace

Nanos EngineCore::tick(Nanos now) {
  peers_.all_with_lanes(&tick_scratch_);
  bool any = dialler_.dials();
  for (auto& peer : tick_scratch_) {
    if (peer->ending().dismantled()) continue;
    any = true;
    // What could not be done is tried again with the next tick.
    try {
      peer->tick(now);
    } catch (...) {
      failed("a peer's deadlines and watchdogs", caught(TCPX_BLAST_NOTHING));
    }
  }
  tick_scratch_.clear();
  dialler_.tick(now);
  return std::min(now + (any ? kTick : kIdleTick), dialler_.wants_tick());
}

// For who asks again and again without a transfer of its own, e.g. for notifications: if it has the
// core that the loops' threads would need, it does their work. If not, they are more than this one.
void EngineCore::poll() {
  if (!shared_.caller_takes_a_core()) return;
  for (auto& loop : shared_.loops) (void)loop->drive([] { return false; }, 0, Loop::Caller::kPolls);
}

Status EngineCore::disconnect(uint64_t id) {
  std::shared_ptr<Peer> peer;
  if (Status status = peers_.find(id, &peer); !status) return status;
  say_goodbye({peer}, peer_error(TCPX_CANCELLED, "disconnected by this side"), kGoodbyePatience);
  const bool all_over = peer->ending().dismantle(kGoodbyePatience);
  peers_.forget(peer);
  if (all_over || peer->ending().lanes_not_shut() == 0) return {};
  return Status(TCPX_DEADLINE, TCPX_BLAST_PEER,
                "the peer is disconnected, but a copy or a net plugin's call that has not ended "
                "still uses registered memory; do not free it before tcpx_deregister says so");
}

Status EngineCore::prepare(uint64_t id, tcpx_op op, std::span<const tcpx_local_piece> local,
                           std::span<const tcpx_remote_piece> remote,
                           std::shared_ptr<TransferState>* out) {
  std::shared_ptr<Peer> peer;
  if (Status status = peers_.find(id, &peer); !status) return status;
  if (peer->over()) return peer->end_status();
  uint64_t bytes = 0;
  for (const tcpx_local_piece& piece : local) bytes += std::min(piece.length, UINT64_MAX - bytes);
  // Lanes of one loop send one after the other: they get no parts of their own, but take turns with
  // what is longer than a chunk.
  const uint64_t lanes = std::min<size_t>(shared_.lanes_per_peer, shared_.loops.size());
  auto cut = [&](uint64_t parts, uint64_t smallest) {
    const uint64_t share = bytes / parts + 4095, most = shared_.options.chunk_bytes;
    return std::clamp(share - share % 4096, std::min(smallest, most), most);
  };
  PlanRequest request{op, local, remote, nullptr, 0, shared_.movers};
  wire::Uid uid;
  if (peer->is_established()) {
    uid = peer->identity().uid;
    request.remote_engine = uid.data();
  }
  request.chunk_bytes = cut(lanes, tuning::kSmallestCut);
  request.gpu_chunk_bytes = cut(lanes * tuning::kGpuParts, tuning::kSmallestGpuCut);
  auto transfer = std::make_shared<TransferState>();
  if (Status status = make_plan(request, shared_.regions, &transfer->plan); !status) return status;
  transfer->peer = std::move(peer);
  *out = std::move(transfer);
  return {};
}

}  // namespace tcpx
