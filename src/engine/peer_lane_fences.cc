// A lane's part in fences: what it stops at once, and what its path cannot call back.
#include <algorithm>

#include "engine/fence.h"
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

namespace {

constexpr Nanos kFencePatience = 200 * kMilli;  // with what does not move

}  // namespace

void PeerLane::add_fence(const std::shared_ptr<Fence>& fence) noexcept {
  bool kept = false;
  or_close([&] {
    fences_.push_back(fence);
    kept = true;
    look_at_fences();
  });
  if (!kept) fence->let_go();  // it has closed the lane, which is one too
}

// In every round, as long as there are any.
void PeerLane::look_at_fences() noexcept {
  for (size_t i = 0; i < fences_.size();) {
    std::shared_ptr<Fence> fence = fences_[i];
    bool let_go = false;
    or_close([&] { let_go = fence->is_let_go_by(*this); });
    // Where that closed the lane they are gone from here: it has told them.
    if (i >= fences_.size() || fences_[i] != fence) return;
    if (!let_go) {
      ++i;
      continue;
    }
    fences_.erase(fences_.begin() + static_cast<std::ptrdiff_t>(i));
    fence->let_go();
  }
  if (!fences_.empty() && open()) loop_.make_waiting(lane_->source_index());
}

size_t PeerLane::stop(const TransferState& transfer, uint64_t post) {
  return stop_if([&](const std::shared_ptr<TransferState>& of, uint64_t of_post) {
    return of.get() == &transfer && of_post == post;
  });
}

size_t PeerLane::stop_users_of(uint64_t region) {
  return stop_if([region](const std::shared_ptr<TransferState>& of, uint64_t) {
    return of != nullptr && of->plan.uses(region);
  });
}

// Of our own chunks, those for which mine(transfer, post) is true.
template <class Mine>
size_t PeerLane::stop_if(Mine&& mine) {
  advance_moves();
  if (load_.dealt.load(std::memory_order_acquire) &&
      mine(dealt_work_.transfer, dealt_work_.transfer_id)) {
    ChunkWork work;
    take_dealt(&work);
    peer_.transfers().settle(work, TCPX_CANCELLED, "the caller");
  }
  size_t moving = 0;
  window_.each([&](ChunkOut& entry) {
    if (!mine(entry.transfer, entry.transfer_id)) return;
    if ((entry.landing != nullptr && entry.landing->state == RxChunk::State::kPlacing) ||
        (entry.frame != nullptr && entry.frame->move != 0)) {
      ++moving;  // a move cannot be called back
      return;
    }
    if (entry.landing != nullptr && entry.landing->state == RxChunk::State::kLanding) {
      entry.landing->drop(TCPX_CANCELLED);
      shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    }
    if (entry.landing != nullptr && entry.landing->slot == nullptr && lane_->holds(entry.landing)) {
      ++moving;
      return;
    }
    TxFrame* frame = entry.frame;
    if (frame != nullptr && (moves_.unwait(frame) || lane_->unqueue(frame))) {
      entry.frame = nullptr;
      drop_frame(frame);
      settle(entry, TCPX_CANCELLED);  // never left: settled here and now
      return;
    }
    if (frame != nullptr && !entry.is_read && !lane_->abandon(frame, TCPX_CANCELLED) &&
        frame->slot == nullptr) {
      ++moving;
      return;
    }
    if (entry.is_read) entry.transfer.reset();
  });
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
    if (chunk->state == RxChunk::State::kLanding) {
      chunk->drop(TCPX_STALE_REGION);
      shared_.counters.stale_frames.fetch_add(1, std::memory_order_relaxed);
    }
    if (chunk->slot == nullptr && lane_->holds(chunk)) ++moving;
  });
  moves_.each_placing([&](RxChunk* chunk) {
    if (chunk->state == RxChunk::State::kPlacing && names(chunk->pieces)) ++moving;
  });
  chunk_frames_.each([&](TxFrame* frame) {
    if (frame->header.type != wire::FrameType::kData || !names(frame->pieces)) return;
    if (frame->move != 0) {
      ++moving;
    } else if (moves_.unwait(frame) || lane_->unqueue(frame)) {
      const wire::Header header = frame->header;
      load_.serving.fetch_sub(1, std::memory_order_relaxed);
      drop_frame(frame);
      refuse_read(header, TCPX_STALE_REGION);
      wake();
    } else if (!lane_->abandon(frame, TCPX_STALE_REGION) && frame->slot == nullptr) {
      ++moving;
    }
  });
  return moving;
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
