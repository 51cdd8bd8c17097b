#include "send_comm.h"

#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "counters.h"
#include "log.h"
#include "misuse.h"

namespace tcpx_emu {

namespace {

constexpr size_t kTurnBytes = 1u << 20;  // a turn of test() ends after this much
constexpr size_t kMaxIov = 16;
constexpr size_t kControlBytes = 64 * sizeof(ControlMessage);
constexpr uint32_t kLookEvery = 32;  // idle turns between looks at the control socket

}  // namespace

SendComm::SendComm(WorldPtr world, int dev, std::unique_ptr<Setup> setup)
    : Comm(Kind::kSend, std::move(world), dev, std::move(setup)) {
  control_out_.reserve(kControlBytes);
}

SendComm::~SendComm() {
  copier_.reset();
  if (staging_.host != nullptr) staging_device_->release(staging_);
}

void SendComm::connected(Connection connection) {
  control_ = std::move(connection.control);
  sockets_ = std::vector<DataSocket>(connection.data.size());
  for (size_t i = 0; i < sockets_.size(); ++i) sockets_[i].fd = std::move(connection.data[i]);
  wait_for_credit_ = connection.peer_flags & kFlagRecvSync;
  wait_for_ack_ = settings().send_done_acked;
  if (const auto* slow = world().faults.from(Fault::kSlowSocket, device)) slow_rate_ = slow->arg;
}

Result SendComm::prepare_for(const Region& region) {
  if (region.type != nccl::kPtrCuda || devices_are_host() || copier_ != nullptr)
    return nccl::kSuccess;
  if (settings().chunk_bytes == 0) return nccl::kSuccess;  // nothing is ever sent
  staging_device_ = current_device();
  if (staging_device_ == nullptr) return nccl::kUnhandledCudaError;
  staging_bytes_ = static_cast<uint64_t>(settings().chunk_bytes);
  staging_ = staging_device_->allocate(staging_bytes_ * kStagings);
  if (staging_.host == nullptr) return nccl::kUnhandledCudaError;
  copier_ = staging_device_->make_copier(kStagings);
  staging_free_ = (1u << kStagings) - 1;
  return copier_ != nullptr ? nccl::kSuccess : nccl::kUnhandledCudaError;
}

Result SendComm::check(const void* data, int size, const Region* region) {
  if (region == nullptr || size < 0) {
    EMU_WARN("isend: %s", region == nullptr ? "no memory handle" : "negative size");
    return nccl::kInternalError;
  }
  if (!settings().strict || size == 0) return nccl::kSuccess;
  if (settings().chunk_bytes == 0)
    return refuse(world(), device, rule::kChunkUnset,
                  "isend of " + std::to_string(size) + " bytes");
  if (size > settings().chunk_bytes)
    return refuse(world(), device, rule::kChunk,
                  "isend of " + std::to_string(size) + " bytes with chunks of " +
                      std::to_string(settings().chunk_bytes));
  if (!region->contains(data, static_cast<uint64_t>(size)))
    return refuse(world(), device, rule::kInsideSend,
                  "isend of " + std::to_string(size) + " bytes");
  return nccl::kSuccess;
}

Result SendComm::isend(void* data, int size, const Region* region, Request** out) {
  if (Result rc = check(data, size, region)) return rc;
  Result rc;
  Request* request = post(&rc);
  if (request == nullptr) return rc;
  request->data = static_cast<uint8_t*>(data);
  request->size = request->total = static_cast<uint64_t>(size);
  request->region = region;
  add(counters(device).sends);
  *out = request;
  return nccl::kSuccess;
}

bool SendComm::complete(const Request& request) const {
  if (!request.all_announced || request.moved < request.total) return false;
  if (control_sent_ < request.control_end) return false;
  return !wait_for_ack_ || request.ordinal < acks_;
}

void SendComm::reported(Request&, int* sizes) {
  // A plain plugin says how much went; the one imitated says nothing.
  if (sizes != nullptr && !settings().unpack) *sizes = static_cast<int>(slot(freed_).total);
  free_oldest();
}

// ---- one turn --------------------------------------------------------------------------------

void SendComm::progress() {
  if (failed()) return;
  read_words();
  schedule();
  flush_control();
  size_t left = kTurnBytes;
  for (size_t i = 0; i < sockets_.size() && left > 0 && !failed(); ++i) {
    left -= send_some(sockets_[turn_], left);
    turn_ = (turn_ + 1) % sockets_.size();
  }
  idle_turns_ = left == kTurnBytes ? idle_turns_ + 1 : 0;
}

void SendComm::schedule() {
  while (scheduled_ < posted_) {
    Request& request = slot(scheduled_);
    if (wait_for_credit_ && request.ordinal >= credits_) return;
    if (control_out_.size() >= kControlBytes) return;
    if (request.total == 0) {
      announce(request, {kMessageInline, 0, 0, 0, 0});
    } else if (!schedule_piece(request)) {
      return;
    }
    if (request.announced == request.total) {
      request.all_announced = true;
      ++scheduled_;
    }
  }
}

bool SendComm::schedule_piece(Request& request) {
  // The plugin schedules empty pieces for ever when the chunk size is not set.
  if (sockets_.empty() || settings().chunk_bytes == 0) return false;
  DataSocket& socket = sockets_[next_socket_];
  if (socket.queue.full()) return false;
  uint64_t chunk = static_cast<uint64_t>(settings().chunk_bytes);
  auto size = static_cast<uint32_t>(std::min(chunk, request.total - request.announced));
  Piece piece{&request, request.data + request.announced, size, 0, -1};
  if (copier_ != nullptr && request.region->type == nccl::kPtrCuda) {
    if (staging_free_ == 0) return false;
    piece.staging = std::countr_zero(staging_free_);
    uint8_t* to = staging_.host + static_cast<uint64_t>(piece.staging) * staging_bytes_;
    if (!copier_->start(piece.staging, to, piece.data, size)) {
      fail(nccl::kUnhandledCudaError, "copy from the GPU failed");
      return false;
    }
    staging_free_ &= ~(1u << piece.staging);
    piece.data = to;
  }
  socket.queue.push(piece);
  announce(request,
           {kMessageNormal, static_cast<uint16_t>(next_socket_), size,
            static_cast<uint32_t>(request.announced), static_cast<uint32_t>(request.total)});
  request.announced += size;
  next_socket_ = (next_socket_ + 1) % sockets_.size();
  return true;
}

void SendComm::announce(Request& request, const ControlMessage& message) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&message);
  control_out_.insert(control_out_.end(), bytes, bytes + sizeof message);
  control_queued_ += sizeof message;
  request.control_end = control_queued_;
}

void SendComm::flush_control() {
  if (control_out_.empty() || failed()) return;
  ssize_t n = write_some(control_.get(), control_out_.data(), control_out_.size());
  if (n < 0) return fail(nccl::kSystemError, "Connection closed by remote peer");
  control_out_.erase(control_out_.begin(), control_out_.begin() + n);
  control_sent_ += static_cast<uint64_t>(n);
}

// What the receiver says: needed for credits and acks, otherwise only to see that it is gone.
void SendComm::read_words() {
  if (!wait_for_credit_ && !wait_for_ack_ && idle_turns_ % kLookEvery != kLookEvery - 1) return;
  for (;;) {
    auto* into = reinterpret_cast<uint8_t*>(&word_) + word_got_;
    ssize_t n = read_some(control_.get(), into, sizeof word_ - word_got_);
    if (n < 0) return fail(nccl::kSystemError, "Connection closed by remote peer");
    if (n == 0) return;
    word_got_ += static_cast<size_t>(n);
    if (word_got_ < sizeof word_) continue;
    word_got_ = 0;
    ++(word_ & kWordReceived ? acks_ : credits_);
  }
}

// ---- data sockets ----------------------------------------------------------------------------

// Whether the piece's bytes are where the CPU can read them, and may go.
bool SendComm::sendable(const Piece& piece) {
  if (piece.request->hang) return false;
  if (piece.staging < 0) return true;
  Copier::State state = copier_->state(piece.staging);
  if (state == Copier::State::kFailed) fail(nccl::kUnhandledCudaError, "copy from the GPU failed");
  return state == Copier::State::kDone;
}

size_t SendComm::gather(DataSocket& socket, iovec* iov, size_t room, size_t most) {
  size_t used = 0;
  for (size_t i = 0; i < socket.queue.size() && used < room && most > 0; ++i) {
    Piece& piece = socket.queue[i];
    if (!sendable(piece)) break;
    size_t n = std::min<size_t>(piece.size - piece.sent, most);
    iov[used++] = {const_cast<uint8_t*>(piece.data + piece.sent), n};
    most -= n;
  }
  return used;
}

// Fault slow_socket: what may go now, of `most`.
size_t SendComm::slow_limit(DataSocket& socket, size_t most) {
  if (slow_rate_ <= 0) return most;
  Nanos now = now_ns();
  if (socket.slow_since == 0) socket.slow_since = now;
  double due = static_cast<double>(slow_rate_) * static_cast<double>(now - socket.slow_since) / 1e9;
  double may = due - static_cast<double>(socket.slow_sent);
  return may <= 0 ? 0 : std::min(most, static_cast<size_t>(may));
}

size_t SendComm::send_some(DataSocket& socket, size_t most) {
  if (socket.queue.empty()) return 0;
  iovec iov[kMaxIov];
  size_t count = gather(socket, iov, kMaxIov, slow_limit(socket, most));
  if (count == 0) return 0;
  ssize_t n = write_vector(socket.fd.get(), iov, count);
  if (n < 0) {
    fail(nccl::kSystemError, "Connection closed by remote peer");
    return 0;
  }
  auto sent = static_cast<size_t>(n);
  add(counters(device).tx_bytes, sent);
  socket.slow_sent += sent;
  for (size_t left = sent; left > 0;) {
    Piece& piece = socket.queue.front();
    size_t part = std::min<size_t>(left, piece.size - piece.sent);
    piece.sent += static_cast<uint32_t>(part);
    piece.request->moved += part;
    left -= part;
    if (piece.sent < piece.size) break;
    if (piece.staging >= 0) staging_free_ |= 1u << piece.staging;
    socket.queue.pop();
  }
  return sent;
}

}  // namespace tcpx_emu
