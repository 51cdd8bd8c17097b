// A lane's part in fences: what it stops at once, and what its path cannot call back.
#include <algorithm>

#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

namespace {

constexpr Nanos kFencePatience = 200 * kMilli;  // with what does not move

}  // namespace

size_t PeerLane::stop(const TransferState& transfer, uint64_t post) {
  advance_moves();
  if (dealt_.load(std::memory_order_acquire) && dealt_work_.transfer.get() == &transfer &&
      dealt_work_.transfer_id == post) {
    ChunkWork work;
    take_dealt(&work);
    peer_.settle(work, index_, TCPX_CANCELLED, "the caller");
  }
  size_t moving = 0;
  for (Outstanding& entry : outstanding_) {
    if (!entry.used || entry.transfer.get() != &transfer || entry.transfer_id != post) continue;
    if ((entry.landing != nullptr && entry.landing->move != 0) ||
        (entry.frame != nullptr && entry.frame->move != 0)) {
      ++moving;  // a move cannot be called back: the caller comes again
      continue;
    }
    if (entry.landing != nullptr && !entry.landing->discard) {
      entry.landing->discard = true;
      entry.landing->refusal = TCPX_CANCELLED;
      shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    }
    if (entry.landing != nullptr && entry.landing->slot == nullptr && lane_->holds(entry.landing)) {
      ++moving;
      continue;
    }
    TxFrame* frame = entry.frame;
    if (frame != nullptr && lane_->unqueue(frame)) {
      entry.frame = nullptr;
      drop_frame(frame);
      settle(entry, TCPX_CANCELLED);  // never left: settled here and now
      continue;
    }
    if (frame != nullptr && !entry.is_read && !lane_->abandon(frame, TCPX_CANCELLED) &&
        frame->slot == nullptr) {
      ++moving;
      continue;
    }
    if (entry.is_read) entry.transfer.reset();
  }
  return moving;
}

size_t PeerLane::revoke(uint64_t region) {
  auto names = [region](const std::vector<wire::Piece>& pieces) {
    return std::any_of(pieces.begin(), pieces.end(),
                       [region](const wire::Piece& piece) { return piece.region == region; });
  };
  advance_moves();
  size_t moving = 0;
  lane_->each_receiving([&](RxChunk* chunk) {
    if (!names(chunk->pieces)) return;
    if (!chunk->discard) {
      chunk->discard = true;
      chunk->refusal = TCPX_STALE_REGION;
      shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    }
    if (chunk->slot == nullptr && lane_->holds(chunk)) ++moving;
  });
  moves_.each_placing([&](RxChunk* chunk) {
    if (chunk->move != 0 && names(chunk->pieces)) ++moving;
  });
  chunk_frames_.each([&](TxFrame* frame) {
    if (frame->header.type != wire::FrameType::kData || !names(frame->pieces)) return;
    if (frame->move != 0) {
      ++moving;
    } else if (moves_.unwait(frame) || lane_->unqueue(frame)) {
      const wire::Header header = frame->header;
      serving_.fetch_sub(1, std::memory_order_relaxed);
      drop_frame(frame);
      refuse_read(header, TCPX_STALE_REGION);
      wake();
    } else if (!lane_->abandon(frame, TCPX_STALE_REGION) && frame->slot == nullptr) {
      ++moving;
    }
  });
  return moving;
}

// Whether the transfers live or not.
size_t PeerLane::held_for_us(uint64_t region) const {
  return static_cast<size_t>(
      std::count_if(outstanding_.begin(), outstanding_.end(), [&](const Outstanding& entry) {
        return entry.used && entry.transfer && entry.transfer->plan.uses(region) &&
               touches_memory(entry);
      }));
}

// What the path cannot call back. A frame in the stream is no such thing: see Lane::abandon.
bool PeerLane::touches_memory(const Outstanding& entry) const {
  const RxChunk* landing = entry.landing;
  const TxFrame* frame = entry.frame;
  if (landing != nullptr &&
      (landing->move != 0 || (landing->slot == nullptr && lane_->holds(landing))))
    return true;
  if (frame == nullptr || entry.is_read) return false;
  return frame->move != 0 || (frame->slot == nullptr && frame->beside && frame->started);
}

size_t PeerLane::held_or_close(size_t held, Nanos close_at) {
  if (held == 0) return 0;
  // Closing a lane does not end moves, and they need none to come to their end.
  if (!open() || held <= moves_running()) return std::min(held, moves_running());
  Nanos now = now_ns();
  std::string why = lane_->stalled(now, kFencePatience);
  if (why.empty() && now >= close_at) why = "it was still in use when that had to be over";
  if (why.empty()) return held;
  lane_->close(lane_error(TCPX_PEER_TIMEOUT, "memory had to be given back: " + why));
  return moves_running();
}

}  // namespace tcpx
