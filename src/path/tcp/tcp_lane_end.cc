// How a lane ends, and what does not end it: memory that is not there any more.
#include <cerrno>

#include "base/caught.h"
#include "base/text.h"
#include "path/tcp/tcp_lane.h"

namespace tcpx {

// ---- memory that was unmapped ----------------------------------------------------------------

// The kernel takes no byte out of the stream that it could not place: what is left of the payload
// is still there to be discarded.
bool TcpLane::discard_unmapped() {
  RxChunk* chunk = in_.in_payload() ? in_.chunk : nullptr;
  if (chunk == nullptr || chunk->header.type == wire::FrameType::kCarrier || chunk->dropped())
    return false;
  if (in_.payload_left == 0 || in_.landing_is_full()) return false;
  chunk->drop(sink_.on_unmapped(chunk, chunk->landing[in_.landing_at].iov_base));
  return true;
}

// The next part to be sent cannot be read, so it is payload of the first frame: the rest is ours.
bool TcpLane::abandon_unmapped() {
  TxFrame* frame = out_.first();
  if (!frame->started || !frame->has_tail() || frame->next_payload >= frame->payload.size())
    return false;
  const void* at = frame->payload[frame->next_payload].iov_base;
  met_unmapped_ = true;
  return abandon(frame, sink_.on_unmapped(frame, at));
}

// ---- what is on its way in -------------------------------------------------------------------

void TcpLane::each_receiving(const std::function<void(RxChunk*)>& f) const {
  loop_.assert_inside();
  RxChunk* chunk = in_.chunk;
  if (chunk != nullptr && chunk->header.type != wire::FrameType::kCarrier) f(chunk);
  if (beside_ != nullptr) beside_->carrier().each_receiving(f);
}

// ---- the end -------------------------------------------------------------------------------

void TcpLane::on_failure(const Status& status) noexcept {
  loop_.assert_inside();
  in_work_ = false;
  close(status);
}

void TcpLane::close(const Status& status) noexcept {
  loop_.assert_inside();
  if (!open_) return;
  open_ = false;
  if (engaged_) loop_.engage(-1);
  if (watching_room_) loop_.watch_room(source_index_, fd_.get(), false);
  loop_.remove(source_index_, fd_.get());
  fd_.reset();
  if (beside_ != nullptr) beside_->close();
  while (TxFrame* frame = out_.drop()) {
    if (frame->header.type == wire::FrameType::kCarrier)
      beside_->message_out(frame);
    else
      quietly([&] { sink_.on_sent(frame); });
  }
  sink_.on_down(status);
  // The sink has its chunks back, and may have freed them; a fence may still ask what is arriving.
  in_.chunk = nullptr;
  if (beside_ != nullptr) beside_->carrier().forget_receiving();
}

Status TcpLane::io_error(const char* what, int err) const {
  if (err == ECONNRESET || err == EPIPE)
    return lane_error(TCPX_PEER_DISCONNECTED, strf("{} broke the connection", remote_));
  Status status = Status::system(err, TCPX_BLAST_LANE, strf("{} {}", what, remote_));
  return lane_error(TCPX_PEER_DISCONNECTED, status.text());
}

}  // namespace tcpx
