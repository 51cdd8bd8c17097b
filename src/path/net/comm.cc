#include "path/net/comm.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/text.h"
#include "path/net/plugin_log.h"

namespace tcpx::net {
namespace {

Status plugin_error(const char* call, nccl::Result result) {
  std::string warning = last_plugin_warning();
  return lane_error(TCPX_PEER_DISCONNECTED,
                    strf("the net plugin's {}: {}{}{}", call, result_name(result),
                         warning.empty() ? "" : "; its last warning: ", warning));
}

uint64_t payload_of(const TxFrame& frame) {
  return frame.header.payload_bytes;
}

// Placed between two tests: 5 us or so. With 128 KiB (27 us) an interrupt made more than 100 us of
// it 6 to 14 times a second, with this 0 to 6, as for a thread that only reads the clock; rates are
// the same or better.
constexpr uint64_t kPlaceBytes = 32u << 10;

int take_bit(uint32_t* bits) {
  if (*bits == 0) return -1;
  int slot = __builtin_ctz(*bits);
  *bits &= *bits - 1;
  return slot;
}

}  // namespace

// ---- sending -------------------------------------------------------------------------------

SendComm::SendComm(const CommSettings& settings)
    : settings_(settings),
      calls_(settings.plugin->calls()),
      registrations_(calls_, *settings.regions, settings.memory_type) {
  occupancy_.window = settings.window;
}

Status SendComm::open(void* comm, uint64_t request_bytes) {
  comm_ = comm;
  request_bytes_ = request_bytes;
  registrations_.attach(comm);
  if (!staging_.allocate(request_bytes * settings_.window))
    return lane_error(TCPX_NO_MEMORY, "no memory for staging");
  free_staging_ = (1u << settings_.window) - 1;
  return registrations_.add(staging_.data(), staging_.size(), &staging_slice_);
}

Status SendComm::post(const uint8_t* data, uint64_t bytes, Registrations::Slice* slice, int staging,
                      bool of_frame, bool* posted) {
  void* handle = nullptr;
  void* mhandle = staging >= 0 ? staging_slice_->mhandle : slice->mhandle;
  nccl::Result result =
      calls_.isend(comm_, const_cast<uint8_t*>(data), bytes, sequence_, mhandle, &handle);
  *posted = result == nccl::kSuccess && handle != nullptr;
  if (*posted) {
    sequence_ = (sequence_ + 1) & 0x7fffffff;
    requests_.push({handle, of_frame, slice, staging, now_ns()});
    posted_.fetch_add(1, std::memory_order_relaxed);
    return {};
  }
  if (staging >= 0) free_staging_ |= 1u << staging;
  if (slice != nullptr) registrations_.release(slice);
  return result == nccl::kSuccess ? Status() : plugin_error("isend", result);
}

Status SendComm::send_bytes(std::span<const uint8_t> bytes) {
  int staging = take_bit(&free_staging_);
  uint8_t* data = staging_.data() + static_cast<uint64_t>(staging) * request_bytes_;
  memcpy(data, bytes.data(), bytes.size());
  bool posted = false;
  for (Nanos give_up = now_ns() + kSecond; !posted;) {
    if (Status status = post(data, bytes.size(), nullptr, staging, false, &posted); !status)
      return status;
    if (!posted && now_ns() > give_up)
      return lane_error(TCPX_PATH_UNAVAILABLE, "the net plugin takes no request on a new comm");
    if (!posted) take_bit(&free_staging_);
  }
  return {};
}

// The next request of the oldest frame that has some left: straight from its memory if that is in
// one piece and registered, else through staging.
Status SendComm::post_next(bool* posted) {
  Queued& queued = frames_[posting_];
  ScatterList payload(queued.frame->payload);
  uint64_t bytes = std::min(request_bytes_, payload_of(*queued.frame) - queued.posted);
  uint8_t* data = payload.contiguous(queued.posted, bytes);
  Registrations::Slice* slice = data == nullptr ? nullptr : registrations_.find(data, bytes);
  int staging = -1;
  if (slice == nullptr) {
    staging = take_bit(&free_staging_);  // there are as many as requests
    data = staging_.data() + static_cast<uint64_t>(staging) * request_bytes_;
    payload.get(queued.posted, data, bytes);
  }
  if (Status status = post(data, bytes, slice, staging, true, posted); !status) return status;
  if (!*posted) return {};
  if (slice == nullptr) queued.frame->copied += bytes;
  queued.posted += bytes;
  ++queued.requests;
  if (queued.posted == payload_of(*queued.frame)) ++posting_;
  return {};
}

Status SendComm::test_oldest(bool* done, const std::function<void(TxFrame*)>& sent) {
  Request& request = requests_.front();
  int finished = 0;
  nccl::Result result = calls_.test(request.handle, &finished, nullptr);
  if (result != nccl::kSuccess) return plugin_error("test (send)", result);
  *done = finished != 0;
  if (!*done) return {};
  Request ended = request;
  requests_.pop();
  ++finished_;
  free_request(ended);
  if (!ended.of_frame) return {};
  Queued& oldest = frames_.front();
  if (--oldest.requests > 0 || oldest.posted < payload_of(*oldest.frame)) return {};
  TxFrame* frame = oldest.frame;
  frames_.pop_front();
  --posting_;
  sent(frame);
  return {};
}

void SendComm::free_request(const Request& request) {
  if (request.staging >= 0) free_staging_ |= 1u << request.staging;
  if (request.slice != nullptr) registrations_.release(request.slice);
}

Status SendComm::poll(const std::function<void(TxFrame*)>& sent) {
  for (bool moved = true; moved && comm_ != nullptr;) {
    moved = false;
    while (posting_ < frames_.size() && requests_.size() < settings_.window) {
      bool posted = false;
      if (Status status = post_next(&posted); !status) return status;
      if (!posted) break;
    }
    if (requests_.empty()) return {};
    occupancy_.sample(requests_.size());
    if (Status status = test_oldest(&moved, sent); !status) return status;
  }
  return {};
}

bool SendComm::holds(const TxFrame* frame) const {
  return std::any_of(frames_.begin(), frames_.end(),
                     [&](const Queued& queued) { return queued.frame == frame; });
}

void SendComm::close(const std::function<void(TxFrame*)>& unsent) {
  if (comm_ != nullptr) {
    registrations_.close();
    calls_.close_send(comm_);
    comm_ = nullptr;
  }
  while (!requests_.empty()) requests_.pop();
  posting_ = 0;
  while (!frames_.empty()) {
    TxFrame* frame = frames_.front().frame;
    frames_.pop_front();
    if (unsent) unsent(frame);
  }
}

// ---- receiving -----------------------------------------------------------------------------

ReceiveComm::ReceiveComm(const CommSettings& settings)
    : settings_(settings),
      calls_(settings.plugin->calls()),
      registrations_(calls_, *settings.regions, settings.memory_type) {
  occupancy_.window = settings.window;
}

Status ReceiveComm::open(void* comm, const nccl::DeviceHandle& device, uint64_t request_bytes) {
  comm_ = comm;
  request_bytes_ = request_bytes;
  registrations_.attach(comm);
  bool queue = device.type == nccl::kDeviceUnpack;
  consumes_ = queue && calls_.consumes();
  unpacks_ = queue && settings_.memory_type == nccl::kPtrCuda;
  if (queue && (device.version != nccl::kUnpackVersion || device.handle == nullptr ||
                device.size != sizeof queue_))
    return lane_error(TCPX_PATH_UNAVAILABLE,
                      strf("the net plugin's unpack queue has version {} and {} bytes; version {} "
                           "with {} bytes is understood",
                           device.version, device.size, nccl::kUnpackVersion, sizeof queue_));
  if (unpacks_) memcpy(&queue_, device.handle, sizeof queue_);
  // When unpacking, all receives are posted on the same memory: nothing is written to it.
  if (!staging_.allocate(request_bytes * (unpacks_ ? 1 : settings_.window)))
    return lane_error(TCPX_NO_MEMORY, "no memory for staging");
  free_staging_ = (1u << settings_.window) - 1;
  return registrations_.add(staging_.data(), staging_.size(), &staging_slice_);
}

Status ReceiveComm::post_next(bool* posted) {
  Queued& queued = chunks_[posting_];
  Request request;
  request.chunk = queued.chunk;
  request.offset = queued.posted;
  request.bytes = std::min(request_bytes_, queued.chunk->header.payload_bytes - queued.posted);
  uint8_t* data = staging_.data();
  if (!unpacks_) {
    ScatterList landing(queued.chunk->landing);
    data = queued.chunk->discard ? nullptr : landing.contiguous(queued.posted, request.bytes);
    if (data != nullptr) request.slice = registrations_.find(data, request.bytes);
    if (request.slice == nullptr) {
      request.staging = take_bit(&free_staging_);
      data = staging_.data() + static_cast<uint64_t>(request.staging) * request_bytes_;
    }
  }
  void* mhandle = request.slice != nullptr ? request.slice->mhandle : staging_slice_->mhandle;
  nccl::Result result =
      calls_.irecv(comm_, data, request.bytes, sequence_, mhandle, &request.handle);
  *posted = result == nccl::kSuccess && request.handle != nullptr;
  if (!*posted) {
    if (request.staging >= 0) free_staging_ |= 1u << request.staging;
    if (request.slice != nullptr) registrations_.release(request.slice);
    return result == nccl::kSuccess ? Status() : plugin_error("irecv", result);
  }
  sequence_ = (sequence_ + 1) & 0x7fffffff;
  request.ordinal = ordinal_++;
  request.posted = now_ns();
  requests_.push(request);
  posted_.fetch_add(1, std::memory_order_relaxed);
  queued.posted += request.bytes;
  if (queued.posted == queued.chunk->header.payload_bytes) ++posting_;
  return {};
}

// The fragments of a request that is there, in the order of the queue.
Status ReceiveComm::fragments_of(const Request& request, std::span<const nccl::Fragment>* out) {
  size_t slot = request.ordinal % nccl::kUnpackSlots;
  std::atomic_thread_fence(std::memory_order_acquire);
  uint64_t count = queue_.meta->count[slot];
  if (count > nccl::kUnpackFragments)
    return lane_error(TCPX_PROTOCOL_ERROR,
                      strf("the net plugin's unpack queue has {} fragments in a slot", count));
  *out = {queue_.meta->fragments[slot], count};
  if (!covers_exactly(*out, request.bytes, 0))
    return lane_error(TCPX_PROTOCOL_ERROR,
                      strf("the {} fragments of receive {} do not cover its {} bytes exactly once",
                           count, request.ordinal, request.bytes));
  return {};
}

// Puts the next kPlaceBytes or so of the request where they belong.
void ReceiveComm::place_some(Request& request) {
  ScatterList landing(request.chunk->landing);
  if (request.chunk->discard || (!unpacks_ && request.staging < 0)) {
    request.placed = request.bytes;
  } else if (unpacks_) {
    size_t count = 0;
    for (uint64_t bytes = 0; count < request.fragments.size() && bytes < kPlaceBytes; ++count)
      bytes += request.fragments[count].length;
    uint64_t before = request.placed;
    for (const nccl::Fragment& fragment : request.fragments.first(count))
      request.placed += fragment.length;
    request.chunk->copied += request.placed - before;
    unpack(request.fragments.first(count), static_cast<const uint8_t*>(queue_.bounce), landing,
           request.offset);
    request.fragments = request.fragments.subspan(count);
  } else {
    uint64_t bytes = std::min(kPlaceBytes, request.bytes - request.placed);
    const uint8_t* from = staging_.data() + static_cast<uint64_t>(request.staging) * request_bytes_;
    landing.put(request.offset + request.placed, from + request.placed, bytes);
    request.placed += bytes;
    request.chunk->copied += bytes;
  }
}

// Gives the plugin's buffers back.
Status ReceiveComm::consume(const Request& request) {
  if (!consumes_) return {};
  nccl::Result result = calls_.consumed(comm_, request.handle);
  if (result != nccl::kSuccess) return plugin_error("irecvConsumed", result);
  consumed_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

// The next part of the oldest request that is there; with its last part it is done with.
Status ReceiveComm::place_next(const std::function<Status(RxChunk*)>& arrived) {
  Request& oldest = requests_.front();
  uint64_t before = oldest.placed;
  place_some(oldest);
  if (oldest.placed == before)
    return lane_error(TCPX_PROTOCOL_ERROR,
                      "the net plugin changed its unpack queue after the fact");
  ++progress_;
  if (oldest.placed < oldest.bytes) return {};
  Request request = oldest;
  // Only now: the pages of the pool were being read until here.
  if (Status status = consume(request); !status) return status;
  requests_.pop();
  --here_;
  ++finished_;
  if (request.staging >= 0) free_staging_ |= 1u << request.staging;
  if (request.slice != nullptr) registrations_.release(request.slice);
  Queued& chunk = chunks_.front();
  chunk.arrived += request.bytes;
  if (chunk.arrived < chunk.chunk->header.payload_bytes) return {};
  RxChunk* whole = chunk.chunk;
  chunks_.pop_front();
  --posting_;
  return arrived(whole);
}

Status ReceiveComm::test_next() {
  Request& request = requests_[here_];
  int finished = 0;
  int size = 0;
  nccl::Result result = calls_.test(request.handle, &finished, &size);
  if (result != nccl::kSuccess) return plugin_error("test (receive)", result);
  if (!finished) return {};
  ++here_;
  ++progress_;
  // TCPX never says a size; whoever says one has to say the right one.
  if (size != 0 && static_cast<uint64_t>(size) != request.bytes)
    return lane_error(TCPX_PROTOCOL_ERROR,
                      strf("a receive of {} bytes got {}", request.bytes, size));
  return unpacks_ ? fragments_of(request, &request.fragments) : Status();
}

// One test and one part placed. Placing a whole request between two tests would leave those behind
// it unpolled for 100 us and more (512 KiB).
Status ReceiveComm::poll(const std::function<Status(RxChunk*)>& arrived) {
  if (comm_ == nullptr) return {};
  while (posting_ < chunks_.size() && requests_.size() < settings_.window) {
    bool posted = false;
    if (Status status = post_next(&posted); !status) return status;
    if (!posted) break;
  }
  if (here_ < requests_.size() && broken_.ok()) {
    occupancy_.sample(requests_.size());
    size_t before = here_;
    Status status = test_next();
    if (!status && here_ > before) return status;  // what it says of the request makes no sense
    broken_ = status;
  }
  // What came before the comm broke is delivered first.
  return here_ > 0 ? place_next(arrived) : broken_;
}

bool ReceiveComm::holds(const RxChunk* chunk) const {
  for (size_t i = 0; i < requests_.size(); ++i)
    if (requests_[i].chunk == chunk && requests_[i].slice != nullptr) return true;
  return false;
}

void ReceiveComm::each(const std::function<void(RxChunk*)>& f) const {
  for (const Queued& queued : chunks_) f(queued.chunk);
}

void ReceiveComm::close() {
  if (comm_ == nullptr) return;
  // Every receive that is done is consumed before its comm is closed, wanted or not.
  for (size_t i = 0; i < here_; ++i) (void)consume(requests_[i]).ok();
  registrations_.close();
  calls_.close_recv(comm_);
  comm_ = nullptr;
  here_ = 0;
  while (!requests_.empty()) requests_.pop();
}

}  // namespace tcpx::net
