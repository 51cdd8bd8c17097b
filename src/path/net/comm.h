// The two ends of a comm: credits, order, staging.
//
// What both know without saying it: the payload of a frame is cut into requests of request_bytes,
// the last one shorter, and requests match in the order in which they are posted.
//
// Rules of the contract that live here: at most 16 requests per comm, a receive counts until it is
// consumed; tested is the oldest request not known to be there; consumed in order, and only when
// the bytes are placed; a request with success and no handle is tried again later.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <span>

#include "base/clock.h"
#include "path/lane.h"
#include "path/net/pages.h"
#include "path/net/plugin.h"
#include "path/net/registrations.h"
#include "path/net/ring.h"
#include "path/net/unpack.h"

namespace tcpx::net {

// How full the window is at each test(), also when too little was handed over to fill it; read by
// any thread.
struct Occupancy {
  std::atomic<uint64_t> samples{0};
  std::atomic<uint64_t> live{0};
  uint32_t window = 0;

  void sample(size_t requests) {
    samples.fetch_add(1, std::memory_order_relaxed);
    live.fetch_add(requests, std::memory_order_relaxed);
  }
  // 0..1; negative: nothing was sampled.
  double average() const {
    uint64_t count = samples.load(std::memory_order_relaxed);
    if (count == 0) return -1;
    return static_cast<double>(live.load(std::memory_order_relaxed)) /
           (static_cast<double>(count) * window);
  }
};

struct CommSettings {
  std::shared_ptr<Plugin> plugin;
  const RegionTable* regions = nullptr;
  int memory_type = nccl::kPtrHost;
  uint32_t window = nccl::kMaxRequests;
};

class SendComm {
 public:
  explicit SendComm(const CommSettings& settings);
  ~SendComm() { close(); }

  Status open(void* comm, uint64_t request_bytes);
  bool is_open() const { return comm_ != nullptr; }
  void add(TxFrame* frame) { frames_.push_back({frame, 0, 0}); }
  Status send_bytes(std::span<const uint8_t> bytes);  // a request of its own; staged
  // Posts and tests. `sent` is called for each frame whose memory is free again.
  Status poll(const std::function<void(TxFrame*)>& sent);

  bool idle() const { return frames_.empty() && requests_.empty(); }
  size_t queued_frames() const { return frames_.size(); }
  bool holds(const TxFrame* frame) const;
  void forget(const void* base, uint64_t length) { registrations_.forget(base, length); }
  uint64_t finished() const { return finished_; }                              // requests
  uint64_t posted() const { return posted_.load(std::memory_order_relaxed); }  // any thread
  const Occupancy& occupancy() const { return occupancy_; }
  // After this the plugin reads nothing. Frames not sent are handed to `unsent`.
  void close(const std::function<void(TxFrame*)>& unsent = {});

 private:
  struct Queued {
    TxFrame* frame;
    uint64_t posted;    // bytes
    uint32_t requests;  // under way
  };
  struct Request {
    void* handle = nullptr;
    bool of_frame = false;
    Registrations::Slice* slice = nullptr;
    int staging = -1;
    Nanos posted = 0;
  };

  Status post_next(bool* posted);
  Status post(const uint8_t* data, uint64_t bytes, Registrations::Slice* slice, int staging,
              bool of_frame, bool* posted);
  void free_request(const Request& request);
  Status test_oldest(bool* done, const std::function<void(TxFrame*)>& sent);

  CommSettings settings_;
  PluginCalls& calls_;
  Registrations registrations_;
  void* comm_ = nullptr;
  uint64_t request_bytes_ = 0;
  Pages staging_;
  Registrations::Slice* staging_slice_ = nullptr;
  uint32_t free_staging_ = 0;  // bits
  std::deque<Queued> frames_;  // not all sent
  size_t posting_ = 0;         // index in frames_ of the one being posted
  Ring<Request, nccl::kMaxRequests> requests_;
  int sequence_ = 0;
  uint64_t finished_ = 0;
  std::atomic<uint64_t> posted_{0};
  Occupancy occupancy_;
};

class ReceiveComm {
 public:
  explicit ReceiveComm(const CommSettings& settings);
  ~ReceiveComm() { close(); }

  Status open(void* comm, const nccl::DeviceHandle& device, uint64_t request_bytes);
  bool is_open() const { return comm_ != nullptr; }
  void add(RxChunk* chunk) { chunks_.push_back({chunk, 0, 0}); }
  // `arrived` is called for each chunk whose bytes are all in its landing, in order.
  Status poll(const std::function<Status(RxChunk*)>& arrived);

  bool idle() const { return chunks_.empty() && requests_.empty(); }
  // Received straight into place: the plugin may write there until the receive is done.
  bool holds(const RxChunk* chunk) const;
  void each(const std::function<void(RxChunk*)>& f) const;
  void forget_chunks() noexcept {
    chunks_.clear();
    posting_ = 0;
  }
  void forget(const void* base, uint64_t length) { registrations_.forget(base, length); }
  uint64_t finished() const { return finished_; }  // requests
  uint64_t progress() const { return progress_; }  // also parts of requests
  // Requests; any thread.
  uint64_t posted() const { return posted_.load(std::memory_order_relaxed); }
  uint64_t consumed() const { return consumed_.load(std::memory_order_relaxed); }
  const Occupancy& occupancy() const { return occupancy_; }
  void close();

 private:
  struct Queued {
    RxChunk* chunk;
    uint64_t posted;  // bytes
    uint64_t arrived;
  };
  struct Request {
    void* handle = nullptr;
    RxChunk* chunk = nullptr;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t ordinal = 0;
    Registrations::Slice* slice = nullptr;
    int staging = -1;
    Nanos posted = 0;
    std::span<const nccl::Fragment> fragments;  // there and not placed yet
    uint64_t placed = 0;                        // bytes
  };

  Status post_next(bool* posted);
  Status test_next();
  Status fragments_of(const Request& request, std::span<const nccl::Fragment>* out);
  Status consume(const Request& request);
  Status place_next(const std::function<Status(RxChunk*)>& arrived);
  void place_some(Request& request);

  CommSettings settings_;
  PluginCalls& calls_;
  Registrations registrations_;
  void* comm_ = nullptr;
  bool unpacks_ = false;  // bytes come through the bounce pool
  bool consumes_ = false;
  nccl::UnpackHandle queue_{};
  uint64_t request_bytes_ = 0;
  Pages staging_;  // when unpacking: what receives are posted on, never written
  Registrations::Slice* staging_slice_ = nullptr;
  uint32_t free_staging_ = 0;
  std::deque<Queued> chunks_;
  size_t posting_ = 0;
  uint64_t ordinal_ = 0;  // counts every irecv: the slot in the unpack queue
  Ring<Request, nccl::kMaxRequests> requests_;
  int sequence_ = 0;
  size_t here_ = 0;  // of requests_: those whose bytes are there and not all placed
  Status broken_;    // why there will be no more
  uint64_t finished_ = 0;
  uint64_t progress_ = 0;
  std::atomic<uint64_t> posted_{0}, consumed_{0};
  Occupancy occupancy_;
};

}  // namespace tcpx::net
