#include "recv_comm.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "counters.h"
#include "fragments.h"
#include "log.h"
#include "misuse.h"

namespace tcpx_emu {

namespace {

constexpr size_t kTurnBytes = 1u << 20;
constexpr size_t kControlBytes = 32 * sizeof(ControlMessage);
constexpr char kPeerClosed[] = "Connection closed by remote peer";

}  // namespace

RecvComm::RecvComm(WorldPtr world, int dev, std::unique_ptr<Setup> setup,
                   std::unique_ptr<UnpackQueue> queue, std::shared_ptr<Pool> pool)
    : Comm(Kind::kReceive, std::move(world), dev, std::move(setup)),
      queue_(std::move(queue)),
      pool_(std::move(pool)),
      iov_(kMaxIov) {
  if (pool_) pages_.resize(nccl::kUnpackSlots * nccl::kUnpackFragments);
  words_.reserve(2 * nccl::kMaxRequests);
  control_in_.reserve(kControlBytes);
}

RecvComm::~RecvComm() {
  for (uint64_t ordinal = freed_; ordinal < posted_; ++ordinal)
    if (pool_) pool_->give(pages_of(slot(ordinal)), slot(ordinal).pages);
}

void RecvComm::connected(Connection connection) {
  control_ = std::move(connection.control);
  sockets_ = std::vector<DataSocket>(connection.data.size());
  for (size_t i = 0; i < sockets_.size(); ++i) sockets_[i].fd = std::move(connection.data[i]);
  wants_acks_ = connection.peer_flags & kFlagAcks;
  says_posted_ = settings().recv_sync;
}

// Whether its bytes go to where they belong without a stop in the pool.
bool RecvComm::straight(const Request& request) const {
  return pool_ == nullptr || request.region->type == nccl::kPtrHost;
}

Result RecvComm::irecv(void* data, int size, const Region* region, Request** out) {
  if (region == nullptr || size < 0) {
    EMU_WARN("irecv: %s", region == nullptr ? "no memory handle" : "negative size");
    return nccl::kInternalError;
  }
  bool direct = pool_ == nullptr || region->type == nccl::kPtrHost;
  if (settings().strict && direct && !region->contains(data, static_cast<uint64_t>(size)))
    return refuse(world(), device, rule::kInsideReceive,
                  "irecv of " + std::to_string(size) + " bytes");
  Result rc;
  Request* request = post(&rc);
  if (request == nullptr) return rc;
  request->data = static_cast<uint8_t*>(data);
  request->size = static_cast<uint64_t>(size);
  request->region = region;
  add(counters(device).receives);

  FaultPlan& faults = world().faults;
  if (faults.at(Fault::kNoCmsg, device)) request->strike = "fatal, rx no cmsg";
  if (faults.at(Fault::kHostLanded, device)) request->strike = "data landed on host memory";
  if (const auto* starved = faults.at(Fault::kPoolStarved, device))
    world().starved_until[device] =
        starved->arg < 0 ? Wait::kForever : now_ns() + starved->arg * kMilli;
  *out = request;
  return nccl::kSuccess;
}

bool RecvComm::complete(const Request& request) const {
  // Fault of the plugin itself: the end of the control socket is reported before what came first.
  if (failed() && settings().close_race) return false;
  return request.all_announced && request.moved == request.total;
}

void RecvComm::reported(Request& request, int* sizes) {
  if (pool_ != nullptr) return;  // the slot is freed by irecvConsumed, and no size is said
  if (sizes != nullptr) *sizes = static_cast<int>(request.total);
  free_oldest();
}

Nanos RecvComm::late_consume() const {
  const auto* late = world().faults.always(Fault::kLateConsume, device);
  return late == nullptr ? 0 : late->arg * kMilli;
}

Result RecvComm::consumed(Request* request) {
  if (pool_ == nullptr) return nccl::kSuccess;
  if (request == nullptr || request->comm != this) {
    Result rc =
        refuse(world(), device, rule::kConsumeSend, "irecvConsumed called with invalid request");
    return settings().strict || request == nullptr ? rc : nccl::kSuccess;  // as the plugin does
  }
  if (freed_ == reported_)
    return refuse(world(), device, rule::kConsumeDone,
                  "irecvConsumed called when no inactive request");
  if (request != &slot(freed_)) {
    bool is_done = request->ordinal >= freed_ && request->ordinal < reported_;
    return refuse(world(), device, is_done ? rule::kConsumeOrder : rule::kConsumeDone,
                  "irecvConsumed called with invalid request");
  }
  pool_->give(pages_of(*request), request->pages, late_consume());
  request->pages = 0;
  add(counters(device).consumed);
  free_oldest();
  return nccl::kSuccess;
}

Result RecvComm::check_close() {
  if (pool_ == nullptr || freed_ == reported_) return nccl::kSuccess;
  if (failed() || peer_closed_ || world().lost[device] || !control_ || at_end(control_.get()))
    return nccl::kSuccess;
  std::string says = "head " + std::to_string(freed_) + " tail " + std::to_string(reported_) +
                     " some pages not yet freed?";
  if (settings().strict) return refuse(world(), device, rule::kCloseConsumed, says);
  EMU_WARN("%s", says.c_str());
  return nccl::kSuccess;
}

// ---- one turn --------------------------------------------------------------------------------

void RecvComm::progress() {
  if (failed()) return;
  for (; says_posted_ && posted_said_ < posted_; ++posted_said_) words_.push_back(kWordPosted);
  // While enough is under way there is no need to ask what comes next.
  while (pieces_open_ < 2 * sockets_.size() + 1 && read_control()) {
  }
  size_t left = kTurnBytes;
  for (size_t i = 0; i < sockets_.size() && left > 0 && !failed(); ++i) {
    left -= receive_some(sockets_[turn_], left);
    turn_ = (turn_ + 1) % sockets_.size();
  }
  flush_words();
  if (never_completes()) fail(nccl::kSystemError, kPeerClosed);
}

// Whether the peer is gone and the oldest unfinished receive lacks something. What came before the
// end is delivered first, unless the plugin's own race is wanted.
bool RecvComm::never_completes() {
  if (peer_closed_ && (matched_ == reported_ || settings().close_race)) return true;
  return std::any_of(sockets_.begin(), sockets_.end(), [this](DataSocket& socket) {
    return socket.ended && !socket.queue.empty() &&
           socket.queue.front().request == &slot(reported_);
  });
}

// ---- control socket --------------------------------------------------------------------------

// One message; false when there is none that can be dealt with now.
bool RecvComm::read_control() {
  if (failed() || matched_ == posted_) return false;
  ControlMessage message;
  if (!next_message(&message) || !begin_piece(message)) return false;
  control_at_ += sizeof message;
  return true;
}

bool RecvComm::next_message(ControlMessage* message) {
  if (control_in_.size() - control_at_ < sizeof *message) {
    if (peer_closed_) return false;
    control_in_.erase(control_in_.begin(),
                      control_in_.begin() + static_cast<ptrdiff_t>(control_at_));
    control_at_ = 0;
    uint8_t bytes[kControlBytes];
    ssize_t n = read_some(control_.get(), bytes, kControlBytes - control_in_.size());
    if (n < 0) peer_closed_ = true;
    if (n <= 0) return false;
    control_in_.insert(control_in_.end(), bytes, bytes + n);
    if (control_in_.size() < sizeof *message) return false;
  }
  std::memcpy(message, &control_in_[control_at_], sizeof *message);
  return true;
}

bool RecvComm::check_message(Request& request, const ControlMessage& message) {
  bool first = request.announced == 0;
  bool sane = message.offset == request.announced && (first || message.total == request.total) &&
              message.size <= message.total - message.offset &&
              (message.total == 0 ? message.size == 0 : message.size > 0) &&
              (message.total == 0 || message.socket < sockets_.size());
  if (!sane) {
    fail(nccl::kInternalError, "control message makes no sense");
    return false;
  }
  if (message.total > request.size) {
    std::string says = "receive of " + std::to_string(request.size) +
                       " bytes overrun by a send of " + std::to_string(message.total);
    fail(refuse(world(), device, rule::kReceiveRoom, says));
    return false;
  }
  if (settings().strict && message.total > settings().chunk_bytes) {
    const char* broken = settings().chunk_bytes == 0 ? rule::kChunkUnset : rule::kChunk;
    fail(refuse(world(), device, broken,
                "the sender sends " + std::to_string(message.total) +
                    " bytes, this end's chunk is " + std::to_string(settings().chunk_bytes)));
    return false;
  }
  return true;
}

// False: failed, or not now; then the message waits.
bool RecvComm::begin_piece(const ControlMessage& message) {
  Request& request = slot(matched_);
  if (!check_message(request, message)) return false;
  if (message.size > 0 && sockets_[message.socket].queue.full()) return false;
  if (request.announced == 0) {
    request.total = message.total;
    if (queue_) queue_->take(request.ordinal);
  }
  if (message.size > 0) {
    Piece piece{&request, nullptr, request.fragments, 0, message.size};
    if (straight(request)) {
      piece.straight = request.data + message.offset;
    } else if (!plan_fragments(request, message)) {
      return false;
    }
    sockets_[message.socket].queue.push(piece);
    ++pieces_open_;
    ++request.pieces;
    request.announced += message.size;
  }
  if (request.announced == request.total) {
    request.all_announced = true;
    ++matched_;
    if (request.total == 0) arrived(request);
  }
  return true;
}

// Pages are taken for a whole piece, in the order of the receives: the oldest one can then always
// finish, be consumed and make room, whatever the size of the pool.
bool RecvComm::plan_fragments(Request& request, const ControlMessage& message) {
  if (now_ns() < world().starved_until[device]) return false;
  nccl::Fragment* fragments = queue_->fragments(request.ordinal);
  FragmentPlan plan(settings(), request.ordinal + request.pieces * 0x10000ull, request.total);
  uint32_t end = request.fragments;
  for (uint64_t at = 0; at < message.size; ++end) {
    if (end == nccl::kUnpackFragments) {
      if (settings().may_exit) {
        EMU_WARN("request too many pages");
        std::exit(1);
      }
      fail(nccl::kInternalError, "request too many pages");
      return false;
    }
    nccl::Fragment& f = fragments[end];
    plan.next(message.size - at, &f.length, &f.source);
    f.destination = message.offset + at;
    at += f.length;
  }
  uint32_t count = end - request.fragments;
  if (count > pool_->pages()) {
    fail(nccl::kInternalError, "the bounce pool has fewer pages than one request needs");
    return false;
  }
  uint32_t* pages = pages_of(request) + request.pages;
  if (!pool_->take(pages, count)) return false;
  for (uint32_t i = 0; i < count; ++i)
    fragments[request.fragments + i].source += pages[i] * kPageBytes;
  request.fragments = end;
  request.pages += count;
  return true;
}

void RecvComm::flush_words() {
  if (words_.empty() || peer_closed_) return;
  const auto* bytes = reinterpret_cast<const uint8_t*>(words_.data());
  ssize_t n = write_some(control_.get(), bytes + words_sent_, words_.size() * 4 - words_sent_);
  if (n < 0) return;  // gone; what it sent before is still to be read
  words_sent_ += static_cast<size_t>(n);
  words_.erase(words_.begin(), words_.begin() + static_cast<ptrdiff_t>(words_sent_ / 4));
  words_sent_ %= 4;
}

// ---- data sockets ----------------------------------------------------------------------------

// The places of the next bytes of the socket, across pieces. Returns how many there are.
size_t RecvComm::gather(DataSocket& socket, size_t most) {
  size_t used = 0;
  for (size_t i = 0; i < socket.queue.size(); ++i)
    if (!gather_piece(socket.queue[i], &used, &most)) break;
  return used;
}

// False: no further piece.
bool RecvComm::gather_piece(const Piece& piece, size_t* used, size_t* most) {
  if (piece.request->hang) return false;
  if (piece.straight != nullptr) {
    if (*used == kMaxIov || *most == 0) return false;
    size_t n = std::min<size_t>(piece.left, *most);
    iov_[(*used)++] = {piece.straight, n};
    *most -= n;
    return true;
  }
  const nccl::Fragment* fragment = queue_->fragments(piece.request->ordinal) + piece.fragment;
  uint32_t skip = piece.filled;
  for (uint32_t left = piece.left; left > 0; ++fragment, skip = 0) {
    if (*used == kMaxIov || *most == 0) return false;
    size_t n = std::min<size_t>(fragment->length - skip, *most);
    iov_[(*used)++] = {pool_->host_base() + fragment->source + skip, n};
    *most -= n;
    left -= static_cast<uint32_t>(n);
  }
  return true;
}

size_t RecvComm::receive_some(DataSocket& socket, size_t most) {
  if (socket.queue.empty() || socket.ended) return 0;
  size_t count = gather(socket, most);
  if (count == 0) return 0;
  ssize_t n = read_vector(socket.fd.get(), iov_.data(), count);
  if (n < 0) {
    socket.ended = true;
    return 0;
  }
  landed(socket, static_cast<size_t>(n));
  return static_cast<size_t>(n);
}

void RecvComm::landed(DataSocket& socket, size_t bytes) {
  while (bytes > 0 && !failed()) {
    Piece& piece = socket.queue.front();
    Request& request = *piece.request;
    if (request.strike != nullptr) return strike(request);
    auto part = static_cast<uint32_t>(std::min<size_t>(bytes, piece.left));
    if (piece.straight != nullptr) {
      piece.straight += part;
      add(counters(device).rx_host_bytes, part);
    } else {
      fill_fragments(piece, part);
    }
    piece.left -= part;
    request.moved += part;
    bytes -= part;
    if (piece.left > 0) return;
    socket.queue.pop();
    --pieces_open_;
    if (request.all_announced && request.moved == request.total) arrived(request);
  }
}

void RecvComm::fill_fragments(Piece& piece, uint32_t bytes) {
  const nccl::Fragment* fragments = queue_->fragments(piece.request->ordinal);
  tcpx_emu_counters& c = counters(device);
  add(c.rx_devmem_bytes, bytes);
  uint32_t first = piece.fragment;
  while (bytes > 0) {
    uint32_t part = std::min(bytes, fragments[piece.fragment].length - piece.filled);
    piece.filled += part;
    bytes -= part;
    if (piece.filled < fragments[piece.fragment].length) break;
    ++piece.fragment;
    piece.filled = 0;
  }
  add(c.rx_devmem_pkts, piece.fragment - first);
}

// Where the plugin ends the process.
void RecvComm::strike(Request& request) {
  if (settings().may_exit) {
    EMU_WARN("%s", request.strike);
    std::exit(1);
  }
  fail(nccl::kInternalError, request.strike);
}

void RecvComm::arrived(Request& request) {
  if (queue_) {
    if (settings().shuffle || request.pieces > 1) shuffle(request);
    queue_->publish(request.ordinal, request.fragments);
  }
  // In order, since the word says only that there is one more.
  for (; wants_acks_ && acked_ < matched_ && slot(acked_).moved == slot(acked_).total; ++acked_)
    words_.push_back(kWordReceived);
}

// Descriptors of several sockets come in any order.
void RecvComm::shuffle(Request& request) {
  nccl::Fragment* fragments = queue_->fragments(request.ordinal);
  Random random(static_cast<uint64_t>(settings().seed) + request.ordinal);
  for (uint32_t i = request.fragments; i > 1; --i)
    std::swap(fragments[i - 1], fragments[random.below(i)]);
}

}  // namespace tcpx_emu
