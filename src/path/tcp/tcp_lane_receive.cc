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
    if (got >= 0) counters_.receive_calls.fetch_add(1, std::memory_order_relaxed);
    if (got < 0) {
      if (errno == EINTR || (errno == EFAULT && discard_unmapped())) continue;
      if (errno != EAGAIN)
        fail(io_error("receiving", errno));
      else
        readable_ = false;
      break;
    }
    if (got == 0) {
      fail(lane_error(TCPX_PEER_DISCONNECTED, strf("{} closed the connection", remote_)));
      break;
    }
    total += static_cast<uint64_t>(got);
    if (Status status = consume(static_cast<size_t>(got)); !status) {
      fail(status);
      break;
    }
    // Fewer bytes than asked for: the socket is empty, and new bytes raise a new edge. The end of
    // the stream may have been announced already, so then we go on until we see it.
    bool copied_long = phase_ == Phase::kPayload && static_cast<size_t>(got) >= tuning::kLongCopy;
    if (static_cast<size_t>(got) < asked && !end_hint_ && !copied_long) {
      readable_ = false;
      break;
    }
  }
  if (open_) watch_bytes();
  if (total > 0) {
    counters_.bytes_in.fetch_add(total, std::memory_order_relaxed);
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
  int bytes =
      phase_ == Phase::kPayload && payload_left_ >= tuning::kEventBytes ? tuning::kEventBytes : 1;
  if (bytes == event_bytes_) return;
  event_bytes_ = bytes;
  setsockopt(fd_.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

ssize_t TcpLane::receive_some(size_t* asked) {
  iovec iov[kMaxIov + 1];
  size_t count = 0;
  size_t bytes = 0;
  bool complete = true;  // everything before `ahead_` is in the vector
  if (phase_ == Phase::kTable) {
    iov[count++] = {table_.data() + table_got_, table_.size() - table_got_};
    bytes = table_.size() - table_got_;
    complete = !header_.has_payload();  // else payload follows, and we do not know where it goes
  } else if (phase_ == Phase::kPayload && payload_left_ > 0) {
    if (chunk_->dropped()) {
      *asked = payload_left_;
      return discard_payload(fd_.get(), payload_left_);
    }
    for (size_t i = landing_at_; i < chunk_->landing.size(); ++i) {
      if (count == kMaxIov) break;
      iov[count++] = chunk_->landing[i];
      bytes += chunk_->landing[i].iov_len;
    }
    complete = bytes == payload_left_;
  }
  if (complete) {
    iov[count++] = {ahead_ + ahead_got_, sizeof ahead_ - ahead_got_};
    bytes += sizeof ahead_ - ahead_got_;
  }
  *asked = bytes;
  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = count;
  return receive_payload(fd_.get(), &message);
}

Status TcpLane::consume(size_t bytes) {
  if (phase_ == Phase::kTable) {
    size_t part = std::min(bytes, table_.size() - table_got_);
    table_got_ += part;
    bytes -= part;
    if (table_got_ == table_.size()) {
      Status status = dispatch_head();
      if (!status) return status;
    }
  } else if (phase_ == Phase::kPayload && payload_left_ > 0) {
    size_t part = std::min<uint64_t>(bytes, payload_left_);
    payload_left_ -= part;
    bytes -= part;
    if (!chunk_->dropped()) {
      advance_landing(part);
      if (payload_left_ > 0 && landing_at_ == chunk_->landing.size()) {
        landing_at_ = 0;
        sink_.extend_landing(chunk_);
      }
    }
  }
  ahead_got_ += bytes;
  return consume_ahead();
}

// Bytes in ahead_: the trailer if a payload waits for one, then the next header.
Status TcpLane::consume_ahead() {
  if (phase_ == Phase::kPayload && payload_left_ == 0 && ahead_got_ >= wire::kTrailerBytes) {
    phase_ = Phase::kHeader;
    if (Status status = trailer_arrived(); !status) return status;
  }
  if (phase_ == Phase::kHeader && ahead_got_ == sizeof ahead_) return head_arrived();
  return {};
}

void TcpLane::advance_landing(size_t bytes) {
  while (bytes > 0) {
    iovec& part = chunk_->landing[landing_at_];
    size_t step = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<uint8_t*>(part.iov_base) + step;
    part.iov_len -= step;
    bytes -= step;
    if (part.iov_len == 0) ++landing_at_;
  }
}

Status TcpLane::head_arrived() {
  std::span<const uint8_t, wire::kHeaderBytes> bytes(ahead_ + wire::kTrailerBytes,
                                                     wire::kHeaderBytes);
  ahead_got_ = wire::kTrailerBytes;
  if (Status status = wire::decode_header(bytes, settings_.limits, &header_); !status)
    return status;
  if (header_.sequence != expected_sequence_)
    return peer_error(TCPX_PROTOCOL_ERROR, strf("frame {} arrived where {} was due",
                                                header_.sequence, expected_sequence_));
  ++expected_sequence_;
  counters_.frames_in.fetch_add(1, std::memory_order_relaxed);
  if (header_.table_bytes() > 0) {
    table_.resize(header_.table_bytes());
    table_got_ = 0;
    phase_ = Phase::kTable;
    return {};
  }
  table_.clear();
  return dispatch_head();
}

// Header and table are complete.
Status TcpLane::dispatch_head() {
  handling_ += tuning::kFrameCost + header_.piece_count * tuning::kPieceCost;
  pieces_.resize(header_.piece_count);
  if (Status status = wire::decode_pieces(header_, table_, pieces_); !status) return status;
  if (!header_.has_payload()) {
    phase_ = Phase::kHeader;
    return sink_.on_frame(header_, pieces_);
  }
  if (header_.type == wire::FrameType::kCarrier) return message_head();
  if (Status status = check_way(); !status) return status;
  phase_ = Phase::kPayload;
  payload_left_ = header_.payload_bytes;
  RxChunk* chunk = nullptr;
  Status status = sink_.on_head(header_, pieces_, &chunk);
  if (!status) return status;
  set_hold(ReadHold::kNoSlot, chunk == nullptr);
  if (chunk == nullptr) return {};
  if (goes_beside(header_)) {
    phase_ = Phase::kHeader;
    carrier_->receive(chunk);
    loop_.make_hot(source_index_);
    return {};
  }
  chunk_ = chunk;
  landing_at_ = 0;
  ahead_got_ = 0;  // nothing behind the head was asked for: room for trailer and next header
  return {};
}

void TcpLane::set_hold(ReadHold why, bool on) {
  auto bit = static_cast<uint8_t>(why);
  read_holds_ = static_cast<uint8_t>(on ? read_holds_ | bit : read_holds_ & ~bit);
  counters_.read_holds.store(read_holds_, std::memory_order_relaxed);
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
    if (Status status = dispatch_head(); !status) return fail(status);
  if (open_ && read_holds_ == 0) loop_.make_hot(source_index_);
}

Status TcpLane::trailer_arrived() {
  std::span<const uint8_t, wire::kTrailerBytes> bytes(ahead_, wire::kTrailerBytes);
  wire::Trailer trailer;
  if (Status status = wire::decode_trailer(bytes, &trailer); !status) return status;
  if (trailer.sequence != header_.sequence)
    return peer_error(TCPX_PROTOCOL_ERROR, strf("trailer of frame {} ends frame {}",
                                                trailer.sequence, header_.sequence));
  RxChunk* chunk = std::exchange(chunk_, nullptr);
  if (chunk == &message_) return carrier_->on_message(message_.message);
  return sink_.on_payload(chunk, trailer);
}

}  // namespace tcpx
