// A lane's part in fences: what it stops at once, and what its path cannot call back.
#include <algorithm>

#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

namespace {

constexpr Nanos kFencePatience = 200 * kMilli;  // with what does not move

}  // namespace

size_t PeerLane::stop(const TransferState& transfer, uint64_t post) {
  drain_placings();
  if (dealt_.load(std::memory_order_acquire) && dealt_work_.transfer.get() == &transfer &&
      dealt_work_.transfer_id == post) {
    ChunkWork work;
    take_dealt(&work);
    peer_.settle(work, index_, TCPX_CANCELLED, "the caller");
  }
  size_t moving = 0;
  for (Outstanding& entry : outstanding_) {
    if (!entry.used || entry.transfer.get() != &transfer || entry.transfer_id != post) continue;
    if (entry.landing != nullptr && entry.landing->ticket != 0) {
      ++moving;  // a placing cannot be called back: the caller comes again
      continue;
    }
    if (entry.landing != nullptr && !entry.landing->discard) {
      entry.landing->discard = true;
      entry.landing->refusal = TCPX_CANCELLED;
      shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    }
    if (entry.landing != nullptr && lane_->holds(entry.landing)) {
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
    if (frame != nullptr && !entry.is_read && !lane_->abandon(frame, TCPX_CANCELLED)) {
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
  drain_placings();
  size_t moving = 0;
  lane_->each_receiving([&](RxChunk* chunk) {
    if (!names(chunk->pieces)) return;
    if (!chunk->discard) {
      chunk->discard = true;
      chunk->refusal = TCPX_STALE_REGION;
      shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    }
    if (lane_->holds(chunk)) ++moving;
  });
  for (RxChunk* chunk : placing_)
    if (chunk->ticket != 0 && names(chunk->pieces)) ++moving;
  chunk_frames_.each([&](TxFrame* frame) {
    if (frame->header.type != wire::FrameType::kData || !names(frame->pieces)) return;
    if (lane_->unqueue(frame)) {
      wire::Header failed;
      failed.type = wire::FrameType::kReadFailed;
      failed.status = TCPX_STALE_REGION;
      failed.transfer = frame->header.transfer;
      failed.chunk = frame->header.chunk;
      serving_.fetch_sub(1, std::memory_order_relaxed);
      drop_frame(frame);
      send_small(failed);
      wake();
    } else if (!lane_->abandon(frame, TCPX_STALE_REGION)) {
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
  if (entry.landing != nullptr && (entry.landing->ticket != 0 || lane_->holds(entry.landing)))
    return true;
  return entry.frame != nullptr && entry.frame->beside && entry.frame->started && !entry.is_read;
}

bool PeerLane::close_if_stuck(Nanos close_at) {
  if (!open()) return true;
  Nanos now = now_ns();
  std::string why = lane_->stalled(now, kFencePatience);
  if (why.empty() && now >= close_at) why = "it was still in use when that had to be over";
  if (why.empty()) return false;
  lane_->close(lane_error(TCPX_PEER_TIMEOUT, "memory had to be given back: " + why));
  return true;
}

}  // namespace tcpx
