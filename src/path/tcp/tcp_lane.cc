#include "path/tcp/tcp_lane.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/caught.h"
#include "base/text.h"
#include "path/tcp/payload_io.h"
#include "path/tuning.h"

namespace tcpx {

namespace {

constexpr char kNoPacing[] = "reno";  // in every kernel

}  // namespace

TcpLane::TcpLane(Loop& loop, LaneSink& sink, Fd fd, StreamSettings settings,
                 std::unique_ptr<Carrier> carrier)
    : loop_(loop),
      sink_(sink),
      fd_(std::move(fd)),
      settings_(std::move(settings)),
      beside_(carrier == nullptr ? nullptr
                                 : std::make_unique<PayloadBeside>(std::move(carrier), *this, loop,
                                                                   sink, counters_)) {
  remote_ = settings_.remote;
}

TcpLane::~TcpLane() = default;

Status TcpLane::start(std::shared_ptr<LoopSource> self, uint64_t owner) {
  loop_.assert_inside();
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
  return {};
}

// ---- events --------------------------------------------------------------------------------

void TcpLane::on_events(uint32_t events) {
  loop_.assert_inside();
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
  loop_.assert_inside();
  // A few bytes in the middle of a payload are no event; whoever asks whether the peer is alive
  // (a ping wakes the lane) has to see them.
  if (event_bytes_ > 1) readable_ = true;
  work();
}

Work TcpLane::on_hot() {
  loop_.assert_inside();
  if (!open_) return Work::kNone;
  Work idle = sink_.on_idle();
  Work beside = open_ && beside_ != nullptr ? poll_beside() : Work::kNone;
  if (!open_) return Work::kNone;
  bool more = idle == Work::kMore || beside == Work::kMore;
  work();
  if (!open_) return Work::kNone;
  return more ? Work::kMore : idle == Work::kNone ? beside : idle;
}

bool TcpLane::on_spin() {
  loop_.assert_inside();
  uint64_t before = counters_.bytes_in.load();
  readable_ = true;
  work();
  return counters_.bytes_in.load() != before;
}

void TcpLane::work() {
  if (!open_ || in_work_) return;
  uint64_t turn = loop_.turn_left(source_index_);
  if (turn == 0) return loop_.make_hot(source_index_);
  in_work_ = true;
  if (beside_ != nullptr) beside_->start();
  bool more = false;
  if (readable_ && read_holds_ == 0) more |= receive(turn);
  uint64_t out = counters_.bytes_out.load();
  if (open_) {
    sink_.fill();
    more |= send(turn);
  }
  if (open_) loop_.spend(source_index_, counters_.bytes_out.load() - out);
  in_work_ = false;
  if (!open_) return;
  watch_room();
  set_engaged();
  if (more) loop_.make_hot(source_index_);
}

void TcpLane::flush(uint64_t budget_bytes) noexcept {
  loop_.assert_inside();
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
  bool watch = !out_.empty() && !writable_;
  if (watch == watching_room_ || (!watch && !out_.empty())) return;
  watching_room_ = watch;
  loop_.watch_room(source_index_, fd_.get(), watch);
}

Work TcpLane::poll_beside() {
  if (in_work_) return Work::kMore;
  in_work_ = true;
  beside_->start();
  Work left = Work::kNone;
  Status status = beside_->carrier().poll(&left);
  // A peer that says goodbye closes its comms too; the stream says which of the two it was.
  if (!status && open_) receive(kLastTurn);
  in_work_ = false;
  if (!status) close(status);
  return open_ ? left : Work::kNone;
}

void TcpLane::set_engaged() {
  bool engaged = !out_.empty() || in_.phase != Incoming::Phase::kHeader || sink_.awaits_answer();
  if (engaged != engaged_) loop_.engage(engaged ? 1 : -1);
  engaged_ = engaged;
}
// ---- sending -------------------------------------------------------------------------------

// The kernel reads and writes memory wherever it lies; what it cannot is no place of this path
// (LaneTraits::places).
bool TcpLane::reaches(const TxFrame& frame) {
  loop_.assert_inside();
  return !goes_beside(frame.header) || beside_->carrier().reaches(frame);
}

bool TcpLane::reaches(const RxChunk& chunk) {
  loop_.assert_inside();
  return !goes_beside(chunk.header) || beside_->carrier().reaches(chunk);
}

uint32_t TcpLane::payload_credit() const {
  loop_.assert_inside();
  if (beside_ != nullptr) {
    if (!beside_->settled()) return 0;
    if (beside_->carries()) return beside_->credit();
  }
  const uint32_t queued = out_.payload_frames();
  return queued >= tuning::kQueuedPayloadFrames ? 0 : tuning::kQueuedPayloadFrames - queued;
}

void TcpLane::queue(TxFrame* frame) {
  loop_.assert_inside();
  frame->beside = goes_beside(frame->header);
  if (frame->beside) beside_->queued();
  out_.push(frame);
}

bool TcpLane::unqueue(TxFrame* frame) {
  loop_.assert_inside();
  if (!out_.take_back(frame)) return false;
  if (frame->beside) beside_->taken_back();
  return true;
}

bool TcpLane::abandon(TxFrame* frame, tcpx_code reason) {
  loop_.assert_inside();
  if (frame->beside) return false;  // the other end has a receive waiting for it
  SendQueue::abandon(frame, reason);
  return true;
}

bool TcpLane::send(uint64_t budget) {
  uint64_t total = 0;
  bool turn_over = false;
  while (open_ && writable_ && !silent_ && !out_.empty()) {
    turn_over = total >= budget;
    if (turn_over) break;
    iovec iov[kMaxIov];
    size_t bytes = 0;
    msghdr message{};
    message.msg_iov = iov;
    message.msg_iovlen = out_.gather(iov, kMaxIov, settings_.limits.max_chunk_bytes, &bytes);
    ssize_t sent = send_payload(fd_.get(), &message);
    counters_.send_calls.add(1);
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
        close(io_error("sending", errno));
        break;
      }
      // The peer closed. What it said before, a goodbye perhaps, is still there to be read; the
      // reader meets the end behind it.
      silent_ = readable_ = end_hint_ = true;
      set_hold(ReadHold::kUnreadAnswers, false);  // nobody is answered any more
      return true;
    }
    counters_.bytes_out.add(static_cast<uint64_t>(sent));
    total += static_cast<uint64_t>(sent);
    for (auto taken = static_cast<size_t>(sent); TxFrame* frame = out_.advance(&taken);)
      frame_out(frame);
    // The kernel took less than offered: its buffer is full and will raise an edge. Or it came to
    // memory that is not mapped, and will not: who has met such asks again.
    if (static_cast<size_t>(sent) < bytes && !met_unmapped_) writable_ = false;
    if (out_.empty() || payload_credit() > 0) sink_.fill();
  }
  if (total > 0) counters_.last_send.store(now_ns(), std::memory_order_relaxed);
  if (turn_over) return open_;
  if (finishing_ && out_.empty() && open_) {
    shutdown(fd_.get(), SHUT_WR);
    finishing_ = false;
    silent_ = true;  // answers to what still comes would break the connection before the peer reads
  }
  return false;
}

// The stream has taken all of the frame that goes through it.
void TcpLane::frame_out(TxFrame* frame) {
  counters_.frames_out.add(1);
  if (frame->beside)
    beside_->send(frame);
  else if (frame->header.type == wire::FrameType::kCarrier)
    beside_->message_out(frame);
  else
    sink_.on_sent(frame);
}

void TcpLane::finish() {
  loop_.assert_inside();
  finishing_ = true;
  flush(kLastTurn);
}

}  // namespace tcpx
