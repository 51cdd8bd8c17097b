#include "path/net/receive_comm.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace tcpx::net {

using enum ReceiveState;

static_assert(kMostFragments == nccl::kUnpackFragments);

ReceiveComm::ReceiveComm(const CommSettings& settings)
    : settings_(settings),
      calls_(settings.plugin->calls()),
      registrations_(calls_, settings.memory_type) {
  occupancy_.window = settings.window;
}

// A comm whose pages are still being read, by moves that nobody waits for any more, stays open.
ReceiveComm::~ReceiveComm() {
  (void)close();
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
  if (unpacks_) {
    memcpy(&queue_, device.handle, sizeof queue_);
    for (auto& list : fragments_) list.reserve(kMostFragments);
  }
  scratch_ = settings_.mover->take_slot(SlotUse::kReceive, request_bytes, {});
  if (scratch_ == nullptr) return lane_error(TCPX_NO_MEMORY, "no slot to post receives on");
  scratch_slice_ =
      registrations_.find(settings_.mover->slot_extent(scratch_), scratch_, request_bytes);
  return scratch_slice_ != nullptr ? Status()
                                   : lane_error(TCPX_PATH_UNAVAILABLE, registrations_.refusal());
}

bool ReceiveComm::reaches(const RxChunk& chunk) {
  return unpacks_ || registrations_.cover(chunk.destination, chunk.regions,
                                          chunk.header.payload_bytes, request_bytes_);
}

Status ReceiveComm::go(Request& request, ReceiveState to) const {
  const ReceiveState from = request.state;
  if (advance(&request.state, to)) return {};
  return lane_error(TCPX_INTERNAL, strf("receive {} cannot go from {} to {}", request.ordinal,
                                        name_of(from), name_of(to)));
}

// ---- posted --------------------------------------------------------------------------------

Status ReceiveComm::post_next(bool* posted) {
  Queued& queued = chunks_[posting_];
  const RxChunk& chunk = *queued.chunk;
  Request request;
  request.chunk = queued.chunk;
  request.offset = queued.posted;
  request.bytes = std::min(request_bytes_, chunk.header.payload_bytes - queued.posted);
  uint8_t* data = scratch_;
  if (!unpacks_ && !chunk.dropped()) {
    request.slice =
        registrations_.find({chunk.landing, chunk.regions, queued.posted, request.bytes}, &data);
    if (request.slice == nullptr)
      return lane_error(TCPX_PEER_DISCONNECTED, registrations_.refusal());
  }
  void* mhandle = (request.slice != nullptr ? request.slice : scratch_slice_)->mhandle;
  nccl::Result result =
      calls_.irecv(comm_, data, request.bytes, sequence_, mhandle, &request.handle);
  *posted = result == nccl::kSuccess && request.handle != nullptr;
  if (result != nccl::kSuccess) return plugin_error("irecv", result, &broke_);
  if (!*posted) return {};
  if (request.slice != nullptr) ++request.slice->uses;
  sequence_ = (sequence_ + 1) & 0x7fffffff;
  request.ordinal = ordinal_++;
  requests_.push(request);
  posted_.fetch_add(1, std::memory_order_relaxed);
  queued.posted += request.bytes;
  if (queued.posted == chunk.header.payload_bytes) ++posting_;
  return {};
}

// ---- here ----------------------------------------------------------------------------------

Status ReceiveComm::test_next() {
  Request& request = requests_[here_];
  int finished = 0;
  int size = 0;
  nccl::Result result = calls_.test(request.handle, &finished, &size);
  if (result != nccl::kSuccess) return plugin_error("test (receive)", result, &broke_);
  if (!finished) return {};
  ++here_;
  ++progress_;
  if (Status status = go(request, kHere); !status) return status;
  // TCPX never says a size; whoever says one has to say the right one.
  if (size != 0 && static_cast<uint64_t>(size) != request.bytes)
    return lane_error(TCPX_PROTOCOL_ERROR,
                      strf("a receive of {} bytes got {}", request.bytes, size));
  return begin_move(request);
}

// As the plugin says where they are, in the order of its queue; checked before anything is moved.
Status ReceiveComm::take_fragments(const Request& request) {
  const size_t slot = request.ordinal % nccl::kUnpackSlots;
  std::atomic_thread_fence(std::memory_order_acquire);
  const uint64_t count = queue_.meta->count[slot];
  if (count > nccl::kUnpackFragments)
    return lane_error(TCPX_PROTOCOL_ERROR,
                      strf("the net plugin's unpack queue has {} fragments in a slot", count));
  std::vector<tcpx::Fragment>& taken = fragments_[slot];
  taken.clear();
  for (const nccl::Fragment& each : std::span(queue_.meta->fragments[slot], count))
    taken.push_back({each.source, each.length, each.destination});
  if (!covers_exactly(taken, request.bytes, 0))
    return lane_error(TCPX_PROTOCOL_ERROR,
                      strf("the {} fragments of receive {} do not cover its {} bytes exactly once",
                           count, request.ordinal, request.bytes));
  return {};
}

// ---- moving --------------------------------------------------------------------------------

// All that are here are under way at once: a mover may take them together.
Status ReceiveComm::begin_move(Request& request) {
  if (!unpacks_) return go(request, kMoved);
  if (Status status = take_fragments(request); !status) return status;
  if (request.chunk->dropped()) return go(request, kMoved);
  const RxChunk& chunk = *request.chunk;
  request.move = settings_.mover->begin_unpack(
      {fragments_[request.ordinal % nccl::kUnpackSlots], static_cast<uint8_t*>(queue_.bounce),
       chunk.landing, request.offset,
       chunk.slot == nullptr ? chunk.place : settings_.mover->slot_place()});
  ++moving_;
  return go(request, kMoving);
}

// `events`: null when nobody is to be told any more.
Status ReceiveComm::look_at_move(Request& request, Events* events) {
  MoveEnd end;
  MoveState state = settings_.mover->look(request.move, &end);
  if (state == MoveState::kRunning) {
    if (settings_.mover->by_hand()) ++progress_;
    return {};
  }
  request.move = 0;
  --moving_;
  ++progress_;
  if (events != nullptr && state == MoveState::kDone) request.chunk->copied += request.bytes;
  if (events != nullptr && state == MoveState::kFailed && !request.chunk->dropped())
    request.chunk->drop(events->move_failed(request.chunk, end.why));
  return go(request, kMoved);
}

// ---- consumed ------------------------------------------------------------------------------

// Gives the plugin's buffers back.
Status ReceiveComm::consume(Request& request) {
  if (Status status = go(request, kConsumed); !status || !consumes_) return status;
  nccl::Result result = calls_.consumed(comm_, request.handle);
  if (result != nccl::kSuccess) return plugin_error("irecvConsumed", result, &broke_);
  consumed_.fetch_add(1, std::memory_order_relaxed);
  return {};
}

// The oldest one that is there: when its move is over it is done with.
Status ReceiveComm::finish_oldest(Events& events) {
  Request& oldest = requests_.front();
  if (oldest.state == kMoving)
    if (Status status = look_at_move(oldest, &events); !status) return status;
  if (oldest.state == kMoving) return {};
  if (Status status = consume(oldest); !status) return status;
  if (oldest.slice != nullptr) registrations_.release(oldest.slice);
  const uint64_t bytes = oldest.bytes;
  requests_.pop();
  --here_;
  ++finished_;
  Queued& chunk = chunks_.front();
  chunk.arrived += bytes;
  if (chunk.arrived < chunk.chunk->header.payload_bytes) return {};
  RxChunk* whole = chunk.chunk;
  chunks_.pop_front();
  --posting_;
  return events.arrived(whole);
}

Status ReceiveComm::poll(Events& events) {
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
  return here_ > 0 ? finish_oldest(events) : broken_;
}

// ---- the end -------------------------------------------------------------------------------

bool ReceiveComm::holds(const RxChunk* chunk) const {
  for (size_t i = 0; i < requests_.size(); ++i) {
    const Request& request = requests_[i];
    if (request.chunk == chunk && (request.slice != nullptr || request.state == kMoving))
      return true;
  }
  return false;
}

void ReceiveComm::each(const std::function<void(RxChunk*)>& f) const {
  for (const Queued& queued : chunks_) f(queued.chunk);
}

bool ReceiveComm::close() {
  if (comm_ == nullptr) return true;
  for (size_t i = 0; i < here_; ++i) {
    Request& request = requests_[i];
    do {
      if (request.state == kMoving) (void)look_at_move(request, nullptr).ok();
    } while (request.state == kMoving && settings_.mover->by_hand());
  }
  if (moving_ > 0) return false;
  // Every receive that is done is consumed before its comm is closed, wanted or not.
  for (size_t i = 0; i < here_; ++i) {
    if (requests_[i].state == kHere) (void)go(requests_[i], kMoved).ok();
    (void)consume(requests_[i]).ok();
  }
  registrations_.close();
  calls_.close_recv(comm_);
  comm_ = nullptr;
  if (scratch_ != nullptr) settings_.mover->give_slot(SlotUse::kReceive, scratch_);
  scratch_ = nullptr;
  here_ = 0;
  while (!requests_.empty()) requests_.pop();
  return true;
}

}  // namespace tcpx::net
