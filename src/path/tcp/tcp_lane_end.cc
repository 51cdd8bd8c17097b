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
  if (phase_ != Phase::kPayload || chunk_ == nullptr || chunk_ == &message_ || chunk_->dropped())
    return false;
  if (payload_left_ == 0 || landing_at_ >= chunk_->landing.size()) return false;
  chunk_->drop(sink_.on_unmapped(chunk_, chunk_->landing[landing_at_].iov_base));
  return true;
}

// The next part to be sent cannot be read, so it is payload of the first frame: the rest is ours.
bool TcpLane::abandon_unmapped() {
  TxFrame* frame = first_;
  if (!frame->started || !frame->has_tail() || frame->next_payload >= frame->payload.size())
    return false;
  const void* at = frame->payload[frame->next_payload].iov_base;
  met_unmapped_ = true;
  return abandon(frame, sink_.on_unmapped(frame, at));
}

// ---- the end -------------------------------------------------------------------------------

void TcpLane::fail(const Status& status) {
  close(status);
}

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
  if (carrier_ != nullptr) quietly([&] { carrier_->close(); });
  while (first_ != nullptr) {
    TxFrame* frame = first_;
    first_ = frame->next;
    if (frame->header.type != wire::FrameType::kCarrier) quietly([&] { sink_.on_sent(frame); });
  }
  last_ = nullptr;
  messages_.clear();
  sink_.on_down(status);
  // The sink has its chunks back, and may have freed them; a fence may still ask what is arriving.
  chunk_ = nullptr;
  if (carrier_ != nullptr) carrier_->forget_receiving();
}

Status TcpLane::io_error(const char* what, int err) const {
  if (err == ECONNRESET || err == EPIPE)
    return lane_error(TCPX_PEER_DISCONNECTED, strf("{} broke the connection", remote_));
  Status status = Status::system(err, TCPX_BLAST_LANE, strf("{} {}", what, remote_));
  return lane_error(TCPX_PEER_DISCONNECTED, status.text());
}

}  // namespace tcpx
