#include "path/tcp/tcp_lane.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/caught.h"
#include "base/text.h"
#include "path/tcp/payload_io.h"
#include "path/tuning.h"

namespace tcpx {

namespace {

constexpr size_t kZeroBytes = 1u << 20;
constexpr char kNoPacing[] = "reno";  // in every kernel

// Source of the zeros that fill an abandoned frame. Never written, so it costs no memory.
uint8_t* zeros() {
  static uint8_t* const page = static_cast<uint8_t*>(
      mmap(nullptr, kZeroBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return page;
}

}  // namespace

TcpLane::TcpLane(Loop& loop, LaneSink& sink, Fd fd, StreamSettings settings,
                 std::unique_ptr<Carrier> carrier)
    : loop_(loop),
      sink_(sink),
      fd_(std::move(fd)),
      settings_(std::move(settings)),
      carrier_(std::move(carrier)) {
  remote_ = settings_.remote;
  pieces_.reserve(wire::kMaxPieces);
  table_.reserve(64 * wire::kPieceBytes);
}

TcpLane::~TcpLane() = default;

Status TcpLane::start(std::shared_ptr<LoopSource> self, uint64_t owner) {
  int one = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (settings_.same_host) {
    // There is no network to be gentle to. A pacing algorithm (bbr) stops a sender for a timer's
    // time every few segments: 1 MiB in 112 us or in 350, by turns.
    setsockopt(fd_.get(), IPPROTO_TCP, TCP_CONGESTION, kNoPacing, sizeof kNoPacing - 1);
  }
  if (settings_.socket_buffer > 0) {
    int bytes = static_cast<int>(std::min<uint64_t>(settings_.socket_buffer, 1u << 30));
    setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  Status status = loop_.add(fd_.get(), std::move(self), &source_index_, owner);
  if (!status) return status;
  open_ = readable_ = writable_ = true;  // edges before add() are not reported
  counters_.last_receive.store(now_ns(), std::memory_order_relaxed);
  loop_.make_hot(source_index_);
  if (carrier_ != nullptr) way_.store(Way::kUnsettled);
  return {};
}

// ---- events --------------------------------------------------------------------------------

void TcpLane::on_events(uint32_t events) {
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable_ = true;
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) end_hint_ = true;
  // The peer has taken bytes: it is not silent, although it may have a long message to take before
  // it answers.
  if ((events & EPOLLOUT) != 0 && !writable_)
    counters_.last_receive.store(now_ns(), std::memory_order_relaxed);
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable_ = true;
  work();
}

void TcpLane::on_wake() {
  // A few bytes in the middle of a payload are no event; whoever asks whether the peer is alive
  // (a ping wakes the lane) has to see them.
  if (event_bytes_ > 1) readable_ = true;
  work();
}

Work TcpLane::on_hot() {
  if (!open_) return Work::kNone;
  Work idle = sink_.on_idle();
  Work beside = open_ && carrier_ != nullptr ? poll_carrier() : Work::kNone;
  if (!open_) return Work::kNone;
  bool more = idle == Work::kMore || beside == Work::kMore;
  work();
  if (!open_) return Work::kNone;
  return more ? Work::kMore : idle == Work::kNone ? beside : idle;
}

bool TcpLane::on_spin() {
  uint64_t before = counters_.bytes_in.load(std::memory_order_relaxed);
  readable_ = true;
  work();
  return counters_.bytes_in.load(std::memory_order_relaxed) != before;
}

void TcpLane::work() {
  if (!open_ || in_work_) return;
  uint64_t turn = loop_.turn_left(source_index_);
  if (turn == 0) return loop_.make_hot(source_index_);
  in_work_ = true;
  start_carrier();
  bool more = false;
  if (readable_ && read_holds_ == 0) more |= receive(turn);
  uint64_t out = counters_.bytes_out.load(std::memory_order_relaxed);
  if (open_) {
    sink_.fill();
    more |= send(turn);
  }
  if (open_) loop_.spend(source_index_, counters_.bytes_out.load(std::memory_order_relaxed) - out);
  in_work_ = false;
  if (!open_) return;
  watch_room();
  set_engaged();
  if (more) loop_.make_hot(source_index_);
}

void TcpLane::flush(uint64_t budget_bytes) noexcept {
  try {
    flush_or_throw(budget_bytes);
  } catch (...) {
    on_failure(caught(TCPX_BLAST_PEER));
  }
}

void TcpLane::flush_or_throw(uint64_t budget_bytes) {
  if (!open_ || in_work_) return;
  in_work_ = true;
  sink_.fill();
  bool more = send(budget_bytes);
  in_work_ = false;
  if (!open_) return;
  watch_room();
  set_engaged();
  if (more) loop_.make_hot(source_index_);
}

// Changing it makes the kernel look again, so room that came before is not missed.
void TcpLane::watch_room() {
  bool watch = first_ != nullptr && !writable_;
  if (watch == watching_room_ || (!watch && first_ != nullptr)) return;
  watching_room_ = watch;
  loop_.watch_room(source_index_, fd_.get(), watch);
}

void TcpLane::set_engaged() {
  bool engaged = first_ != nullptr || phase_ != Phase::kHeader || sink_.awaits_answer();
  if (engaged != engaged_) loop_.engage(engaged ? 1 : -1);
  engaged_ = engaged;
}
// ---- sending -------------------------------------------------------------------------------

uint32_t TcpLane::payload_credit() const {
  Way way = way_.load(std::memory_order_relaxed);
  if (way == Way::kUnsettled) return 0;
  if (way == Way::kBeside) {
    uint32_t credit = carrier_->credit();
    return credit > queued_beside_ ? credit - queued_beside_ : 0;
  }
  return queued_payload_frames_ >= tuning::kQueuedPayloadFrames
             ? 0
             : tuning::kQueuedPayloadFrames - queued_payload_frames_;
}

void TcpLane::queue(TxFrame* frame) {
  frame->next = nullptr;
  frame->started = false;
  frame->beside = goes_beside(frame->header);
  if (frame->beside) ++queued_beside_;
  if (last_ != nullptr)
    last_->next = frame;
  else
    first_ = frame;
  last_ = frame;
  if (frame->has_tail()) ++queued_payload_frames_;
}

bool TcpLane::unqueue(TxFrame* frame) {
  if (frame->started) return false;
  TxFrame** link = &first_;
  TxFrame* previous = nullptr;
  while (*link != nullptr && *link != frame) {
    previous = *link;
    link = &previous->next;
  }
  if (*link == nullptr) return false;
  *link = frame->next;
  if (last_ == frame) last_ = previous;
  if (frame->has_tail()) --queued_payload_frames_;
  if (frame->beside) --queued_beside_;
  return true;
}

bool TcpLane::abandon(TxFrame* frame, tcpx_code reason) {
  if (frame->beside) return false;  // the other end has a receive waiting for it
  uint64_t left = 0;
  for (size_t i = frame->next_payload; i < frame->payload.size(); ++i)
    left += frame->payload[i].iov_len;
  if (left == 0) return true;  // all payload is with the kernel
  frame->payload.clear();
  frame->next_payload = 0;
  for (; left > 0; left -= frame->payload.back().iov_len)
    frame->payload.push_back({zeros(), std::min<uint64_t>(left, kZeroBytes)});
  frame->trailer_status = static_cast<uint16_t>(reason);
  wire::encode_trailer({frame->trailer_status, frame->header.sequence}, frame->tail);
  return true;
}

void TcpLane::begin(TxFrame* frame) {
  frame->started = true;
  frame->header.sequence = next_sequence_++;
  wire::encode_header(frame->header, frame->head);
  frame->left = wire::kHeaderBytes + frame->table.size();
  frame->next_payload = 0;
  if (frame->has_tail()) {
    wire::encode_trailer({frame->trailer_status, frame->header.sequence}, frame->tail);
    frame->left += frame->header.payload_bytes + wire::kTrailerBytes;
  }
}

// Adds what is left of a frame: a suffix of head, table, payload, tail.
size_t TcpLane::gather_frame(TxFrame* frame, iovec* iov, size_t room, size_t* bytes) {
  size_t count = 0;
  auto add = [&](const void* base, size_t length) {
    iov[count++] = {const_cast<void*>(base), length};
    *bytes += length;
  };
  uint64_t tail = frame->has_tail() ? wire::kTrailerBytes : 0;
  uint64_t payload = frame->has_tail() ? frame->header.payload_bytes : 0;
  uint64_t left = frame->left;
  if (left > tail + payload + frame->table.size()) {
    size_t rest = left - tail - payload - frame->table.size();
    add(frame->head + wire::kHeaderBytes - rest, rest);
    left -= rest;
  }
  if (left > tail + payload) {
    size_t rest = left - tail - payload;
    add(frame->table.data() + frame->table.size() - rest, rest);
    left -= rest;
  }
  for (size_t i = frame->next_payload; payload > 0 && i < frame->payload.size() && count + 1 < room;
       ++i) {
    add(frame->payload[i].iov_base, frame->payload[i].iov_len);
    left -= frame->payload[i].iov_len;
  }
  if (left > 0 && left <= tail) add(frame->tail + tail - left, left);
  return count;
}

size_t TcpLane::gather(iovec* iov, size_t* bytes) {
  size_t count = 0;
  for (TxFrame* frame = first_; frame != nullptr && count + 4 < kMaxIov; frame = frame->next) {
    if (!frame->started) begin(frame);
    size_t before = *bytes;
    count += gather_frame(frame, iov + count, kMaxIov - count, bytes);
    if (*bytes - before < frame->left) break;  // did not fit whole
    if (*bytes >= settings_.limits.max_chunk_bytes) break;
  }
  return count;
}

bool TcpLane::send(uint64_t budget) {
  uint64_t total = 0;
  bool turn_over = false;
  while (open_ && writable_ && !silent_ && first_ != nullptr) {
    turn_over = total >= budget;
    if (turn_over) break;
    iovec iov[kMaxIov];
    size_t bytes = 0;
    msghdr message{};
    message.msg_iov = iov;
    message.msg_iovlen = gather(iov, &bytes);
    ssize_t sent = send_payload(fd_.get(), &message);
    counters_.send_calls.fetch_add(1, std::memory_order_relaxed);
    if (sent < 0 && errno == EFAULT && message.msg_iovlen > 1) {
      // Some part is not mapped any more. By itself, the first one shows whether it is that.
      message.msg_iovlen = 1;
      bytes = iov[0].iov_len;
      sent = send_payload(fd_.get(), &message);
    }
    if (sent < 0) {
      if (errno == EINTR || (errno == EFAULT && abandon_unmapped())) continue;
      if (errno == EAGAIN) {
        writable_ = false;
        break;
      }
      if (errno != EPIPE && errno != ECONNRESET) {
        fail(io_error("sending", errno));
        break;
      }
      // The peer closed. What it said before, a goodbye perhaps, is still there to be read; the
      // reader meets the end behind it.
      silent_ = readable_ = end_hint_ = true;
      set_hold(ReadHold::kUnreadAnswers, false);  // nobody is answered any more
      return true;
    }
    counters_.bytes_out.fetch_add(static_cast<uint64_t>(sent), std::memory_order_relaxed);
    total += static_cast<uint64_t>(sent);
    advance(static_cast<size_t>(sent));
    // The kernel took less than offered: its buffer is full and will raise an edge. Or it came to
    // memory that is not mapped, and will not: who has met such asks again.
    if (static_cast<size_t>(sent) < bytes && !met_unmapped_) writable_ = false;
    if (first_ == nullptr || payload_credit() > 0) sink_.fill();
  }
  if (total > 0) counters_.last_send.store(now_ns(), std::memory_order_relaxed);
  if (turn_over) return open_;
  if (finishing_ && first_ == nullptr && open_) {
    shutdown(fd_.get(), SHUT_WR);
    finishing_ = false;
    silent_ = true;  // answers to what still comes would break the connection before the peer reads
  }
  return false;
}

void TcpLane::advance(size_t bytes) {
  while (bytes > 0) {
    TxFrame* frame = first_;
    uint64_t tail = frame->has_tail() ? wire::kTrailerBytes : 0;
    uint64_t payload = frame->has_tail() ? frame->header.payload_bytes : 0;
    size_t step = std::min<uint64_t>(bytes, frame->left);
    // The part of this step that lies in the payload moves the payload cursor.
    uint64_t before = std::min(frame->left, tail + payload);
    frame->left -= step;
    bytes -= step;
    uint64_t moved = before - std::min(before, std::max(frame->left, tail));
    while (moved > 0) {
      iovec& part = frame->payload[frame->next_payload];
      size_t length = std::min<uint64_t>(moved, part.iov_len);
      part.iov_base = static_cast<uint8_t*>(part.iov_base) + length;
      part.iov_len -= length;
      moved -= length;
      if (part.iov_len == 0) ++frame->next_payload;
    }
    if (frame->left > 0) continue;
    first_ = frame->next;
    if (first_ == nullptr) last_ = nullptr;
    if (frame->has_tail()) --queued_payload_frames_;
    counters_.frames_out.fetch_add(1, std::memory_order_relaxed);
    frame_out(frame);
  }
}

// The stream has taken all of the frame that goes through it.
void TcpLane::frame_out(TxFrame* frame) {
  if (frame->beside) {
    --queued_beside_;
    carrier_->send(frame);
    loop_.make_hot(source_index_);
  } else if (frame->header.type == wire::FrameType::kCarrier) {
    std::erase_if(messages_, [&](auto& message) { return message.get() == frame; });
  } else {
    sink_.on_sent(frame);
  }
}

void TcpLane::finish() {
  finishing_ = true;
  flush(kLastTurn);
}

}  // namespace tcpx
