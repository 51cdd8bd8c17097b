// What a lane reads: header, table, payload straight into place, trailer, and the next header with
// it where it is there.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"
#include "path/tcp/payload_io.h"
#include "path/tcp/tcp_lane.h"
#include "path/tuning.h"

namespace tcpx {

bool TcpLane::receive(uint64_t budget) {
  uint64_t total = 0;
  bool turn_over = false;
  handling_ = 0;
  while (open_ && read_holds_ == 0) {
    turn_over = total + handling_ >= budget;
    if (turn_over) break;
    size_t asked = 0;
    ssize_t got = receive_some(&asked);
    if (got >= 0) counters_.receive_calls.add(1);
    if (got < 0) {
      if (errno == EINTR || (errno == EFAULT && discard_unmapped())) continue;
      if (errno != EAGAIN)
        close(io_error("receiving", errno));
      else
        readable_ = false;
      break;
    }
    if (got == 0) {
      close(lane_error(TCPX_PEER_DISCONNECTED, strf("{} closed the connection", remote_)));
      break;
    }
    total += static_cast<uint64_t>(got);
    if (Status status = consume(static_cast<size_t>(got)); !status) {
      close(status);
      break;
    }
    // Fewer bytes than asked for: the socket is empty, and new bytes raise a new edge. The end of
    // the stream may have been announced already, so then we go on until we see it.
    bool copied_long = in_.in_payload() && static_cast<size_t>(got) >= tuning::kLongCopy;
    if (static_cast<size_t>(got) < asked && !end_hint_ && !copied_long) {
      readable_ = false;
      break;
    }
  }
  if (open_) watch_bytes();
  if (total > 0) {
    counters_.bytes_in.add(total);
    Nanos now = now_ns();
    counters_.last_receive.store(now, std::memory_order_relaxed);
    if (open_) loop_.heard(source_index_, now);
    if (open_) loop_.spend(source_index_, total + handling_);
  }
  return open_ && turn_over;
}

void TcpLane::watch_bytes() {
  // A socket with less room never has so many: who waits for them reads when the sender's kernel
  // asks whether it may go on, five times a second.
  if (settings_.socket_buffer != 0 && settings_.socket_buffer < 4 * tuning::kEventBytes) return;
  int bytes = in_.in_payload() && in_.payload_left >= tuning::kEventBytes ? tuning::kEventBytes : 1;
  if (bytes == event_bytes_) return;
  event_bytes_ = bytes;
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

ssize_t TcpLane::receive_some(size_t* asked) {
  if (in_.discards()) {
    *asked = in_.payload_left;
    return discard_payload(fd_.get(), in_.payload_left);
  }
  iovec iov[kMaxIov + 1];
  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = in_.gather(iov, asked);
  return receive_payload(fd_.get(), &message);
}

Status TcpLane::consume(size_t bytes) {
  if (in_.phase == Incoming::Phase::kTable) {
    bytes -= in_.take_table(bytes);
    if (in_.table_is_here())
      if (Status status = dispatch_head(); !status) return status;
  } else if (in_.in_payload() && in_.payload_left > 0) {
    bytes -= in_.take_payload(bytes);
    if (in_.payload_left > 0 && !in_.chunk->dropped() && in_.landing_is_full()) {
      in_.landing_at = 0;
      sink_.extend_landing(in_.chunk);
    }
  }
  in_.ahead_got += bytes;
  return consume_ahead();
}

// The trailer if a payload waits for one, then the next header.
Status TcpLane::consume_ahead() {
  if (in_.trailer_is_here()) {
    in_.header_follows();
    if (Status status = trailer_arrived(); !status) return status;
  }
  return in_.header_is_here() ? head_arrived() : Status();
}

Status TcpLane::head_arrived() {
  std::span<const uint8_t, wire::kHeaderBytes> bytes(in_.ahead + wire::kTrailerBytes,
                                                     wire::kHeaderBytes);
  in_.ahead_got = wire::kTrailerBytes;
  if (Status status = wire::decode_header(bytes, settings_.limits, &in_.header); !status)
    return status;
  if (in_.header.sequence != in_.next_sequence)
    return peer_error(TCPX_PROTOCOL_ERROR, strf("frame {} arrived where {} was due",
                                                in_.header.sequence, in_.next_sequence));
  ++in_.next_sequence;
  counters_.frames_in.add(1);
  if (in_.header.table_bytes() > 0) {
    in_.table_follows();
    return {};
  }
  in_.table.clear();
  return dispatch_head();
}

// Header and table are complete.
Status TcpLane::dispatch_head() {
  const wire::Header& header = in_.header;
  handling_ += tuning::kFrameCost + header.piece_count * tuning::kPieceCost;
  in_.pieces.resize(header.piece_count);
  if (Status status = wire::decode_pieces(header, in_.table, in_.pieces); !status) return status;
  if (!header.has_payload()) {
    in_.header_follows();
    return sink_.on_frame(header, in_.pieces);
  }
  if (header.type == wire::FrameType::kCarrier) return message_head();
  if (!settled() && !header.is_notice())
    return peer_error(TCPX_PROTOCOL_ERROR, "payload before the lane's carrier was settled");
  in_.payload_follows();
  RxChunk* chunk = nullptr;
  Status status = sink_.on_head(header, in_.pieces, &chunk);
  if (!status) return status;
  set_hold(ReadHold::kNoSlot, chunk == nullptr);
  if (chunk == nullptr) return {};
  if (goes_beside(header)) {
    in_.header_follows();
    beside_->receive(chunk);
    return {};
  }
  in_.lands_in(chunk);
  return {};
}

Status TcpLane::message_head() {
  if (beside_ == nullptr)
    return peer_error(TCPX_PROTOCOL_ERROR, "a message for a carrier that does not exist here");
  in_.payload_follows();
  in_.lands_in(beside_->message_comes(in_.header));
  return {};
}

// Silence counts from when it is read again: a watchdog may look between a hold's end and the next.
void TcpLane::set_hold(ReadHold why, bool on) {
  auto bit = static_cast<uint8_t>(why);
  const bool held_before = read_holds_ != 0;
  read_holds_ = static_cast<uint8_t>(on ? read_holds_ | bit : read_holds_ & ~bit);
  if (held_before && read_holds_ == 0)
    counters_.last_receive.store(now_ns(), std::memory_order_relaxed);
  counters_.read_holds.store(read_holds_, std::memory_order_release);
}

void TcpLane::hold_reading(ReadHold why) {
  loop_.assert_inside();
  if (open_) set_hold(why, true);
}

void TcpLane::resume_reading(ReadHold why) {
  loop_.assert_inside();
  if (!open_ || !held(why)) return;
  set_hold(why, false);
  // The head that found no place is still to be handled.
  if (why == ReadHold::kNoSlot)
    if (Status status = dispatch_head(); !status) return close(status);
  if (open_ && read_holds_ == 0) loop_.make_hot(source_index_);
}

Status TcpLane::trailer_arrived() {
  std::span<const uint8_t, wire::kTrailerBytes> bytes(in_.ahead, wire::kTrailerBytes);
  wire::Trailer trailer;
  if (Status status = wire::decode_trailer(bytes, &trailer); !status) return status;
  if (trailer.sequence != in_.header.sequence)
    return peer_error(TCPX_PROTOCOL_ERROR, strf("trailer of frame {} ends frame {}",
                                                trailer.sequence, in_.header.sequence));
  RxChunk* chunk = std::exchange(in_.chunk, nullptr);
  if (in_.header.type == wire::FrameType::kCarrier) return beside_->message_is_here();
  return sink_.on_payload(chunk, trailer);
}

}  // namespace tcpx
