// Small frames of a lane: above all answers, and what is done with a peer that does not read them.
#include "engine/peer.h"
#include "engine/peer_lane.h"

namespace tcpx {

void PeerLane::send_small(wire::Header header) {
  if (!open() || lane_->silent()) return;
  TxFrame* frame = small_frames_.take();
  frame->header = header;
  if (header.is_answer()) answer_queued();
  lane_->queue(frame);
}

void PeerLane::answer_queued() {
  if (++answers_ != most_answers()) return;
  unread_since_.store(now_ns(), std::memory_order_relaxed);
  lane_->hold_reading(ReadHold::kUnreadAnswers);
}

void PeerLane::answer_sent() {
  if (--answers_ != most_answers() / 2 || unread_since() == 0) return;
  unread_since_.store(0, std::memory_order_relaxed);
  lane_->resume_reading(ReadHold::kUnreadAnswers);
}

}  // namespace tcpx
