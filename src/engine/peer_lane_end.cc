// How a lane ends, and what does not end it: memory that is not there any more.
#include "base/text.h"
#include "engine/fence.h"
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

// ---- memory that was unmapped while it was registered ----------------------------------------

tcpx_code PeerLane::on_unmapped(TxFrame* frame, const void* at) {
  return memory_gone(frame->header, frame->header.type == wire::FrameType::kWrite, at,
                     frame->regions);
}

tcpx_code PeerLane::on_unmapped(RxChunk* chunk, const void* at) {
  return memory_gone(chunk->header, chunk->header.type == wire::FrameType::kData, at,
                     chunk->regions);
}

// `ours`: of a transfer of ours, which ends and says so. Of the peer's it is refused; here only the
// log can tell whose mistake it is.
tcpx_code PeerLane::memory_gone(const wire::Header& header, bool ours, const void* at,
                                const PartRegions& regions) {
  const RegionExtent* around = regions.around(at);
  const RegionExtent region = around == nullptr ? RegionExtent{} : *around;
  std::string text = strf(
      "memory at {} is not mapped any more, but registered ({} bytes from {}); deregister a "
      "region before its memory is freed",
      at, region.length, static_cast<const void*>(region.base));
  ChunkOut* entry = ours ? window_.find(header.transfer, header.chunk) : nullptr;
  if (entry != nullptr && entry->transfer != nullptr)
    peer_.transfers().fail(entry->transfer, entry->transfer_id,
                           transfer_error(TCPX_MEMORY_GONE, text));
  else if (unmapped_lines_.allow(now_ns(), shared_.log))
    shared_.log.warn("peer {} ({}): {} by the peer refused: {}", peer_.id(), escaped(peer_.name()),
                     header.type == wire::FrameType::kWrite ? "a WRITE" : "a READ", text);
  return TCPX_MEMORY_GONE;
}

// ---- the end of the lane -------------------------------------------------------------------

// Allocates nothing itself. What others cannot do for want of memory ends the peer, which needs
// none of it.
void PeerLane::on_down(const Status& status) noexcept {
  load_.open.store(false, std::memory_order_release);
  quietly([&] {
    lane_->each_receiving([this](RxChunk* chunk) {
      if (!lane_->holds(chunk)) drop_chunk(chunk);
    });
  });
  if (quietly([&] { finish_moves(); }) && moves_running() == 0) return ended(status);
  // Nothing arrives or leaves through this lane any more, but what has arrived may still be moved
  // into place: a chunk must not be asked for again while its first copy can still land.
  ending_since_.store(now_ns(), std::memory_order_relaxed);
  auto finish_later = [&] {
    loop_.finish_later(
        [this, status, keep = peer_.shared_from_this(), kept = peer_.lanes().kept()] {
          if (!quietly([&] { finish_moves(); }) || moves_running() > 0) return false;
          ended(status);
          return true;
        });
  };
  // Without memory for that it is waited for here.
  while (!quietly(finish_later)) {
    quietly([&] { finish_moves(); });
    if (moves_running() == 0) return ended(status);
  }
}

// Its last move is over.
void PeerLane::ended(const Status& status) noexcept {
  quietly([&] { advance_moves(); });  // those that waited behind others
  wants_slot_ = wants_send_slot_ = false;
  window_.give_up_all([this](ChunkOut& entry) {
    shared_.counters.chunks_live.fetch_sub(1, std::memory_order_relaxed);
    if (entry.transfer == nullptr) return;
    // A WRITE may still sit in the peer's receive buffer and land: it is sent again only after
    // the peer has closed its end. A READ can be asked again at once.
    auto& list = entry.is_read ? lost_reads_ : lost_writes_;
    list.push_back({std::move(entry.transfer), entry.transfer_id, entry.chunk});
  });
  load_.in_flight.store(0, std::memory_order_relaxed);
  notice_frames_.clear();
  chunk_frames_.each([this](TxFrame* frame) { moves_.give_back(frame); });
  // A peer that has ended is remembered for a while, and its lanes with it: they keep nothing.
  chunk_frames_.drain();
  small_frames_.drain();
  chunks_.drain();
  UnconfirmedWrites unconfirmed{std::move(lost_writes_), std::move(behind_.out), behind_.answered};
  peer_.or_fail([&] {
    peer_.lost_lanes().lost(*this, status, std::move(unconfirmed), std::move(lost_reads_));
  });
  for (auto& fence : std::exchange(fences_, {})) fence->let_go();
  if (ending_since_.exchange(0, std::memory_order_relaxed) == 0 || !shut_) return;
  is_shut_.store(true, std::memory_order_release);
  peer_.or_fail([&] { peer_.lane_shut(); });
}

}  // namespace tcpx
