// The receiving end of a comm: credits and order, and what becomes of bytes that are there.
//
// Two kinds of plugins. One receives into the memory it is given: that lies in one part for every
// request and can be registered (reaches()), or it is a slot. The other one (an unpack queue) puts
// bytes into pages of its own and says which: the mover takes them from there to where they belong.
//
// Rules of the contract that live here: at most 16 requests per comm, a receive counts until it is
// consumed; tested is the oldest request not known to be there; consumed in order, and only when
// its move is over, also when that failed or nobody wants the bytes any more; a request with
// success and no handle is tried again later.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "path/lane.h"
#include "path/net/comm.h"
#include "path/net/receive_state.h"
#include "path/net/registrations.h"
#include "path/net/ring.h"

namespace tcpx::net {

class ReceiveComm {
 public:
  // What happens to chunks.
  class Events {
   public:
    virtual ~Events() = default;
    // All its bytes are in its landing, or dropped. In order.
    virtual Status arrived(RxChunk* chunk) = 0;
    // A move into it failed: with which code it is refused. What follows of it is dropped.
    virtual tcpx_code move_failed(RxChunk* chunk, const std::string& why) = 0;
  };

  explicit ReceiveComm(const CommSettings& settings);
  ~ReceiveComm();

  Status open(void* comm, const nccl::DeviceHandle& device, uint64_t request_bytes);
  bool is_open() const { return comm_ != nullptr; }
  bool broke() const { return broke_; }  // a call on it failed
  // Whether the plugin can receive into its destination, or what it received be moved there.
  bool reaches(const RxChunk& chunk);
  void add(RxChunk* chunk) { chunks_.push_back({chunk, 0, 0}); }
  // Posts, tests once, and looks at the oldest move.
  Status poll(Events& events);

  bool idle() const { return chunks_.empty() && requests_.empty(); }
  // Something can be posted, tested or finished: nothing announces it.
  bool has_work() const {
    return (posting_ < chunks_.size() && requests_.size() < settings_.window) ||
           here_ < requests_.size() ||
           (here_ > 0 && requests_.front().state != ReceiveState::kMoving);
  }
  size_t moving() const { return moving_; }
  // Its landing may still be written: by the plugin until the receive is done, or by a move.
  bool holds(const RxChunk* chunk) const;
  void each(const std::function<void(RxChunk*)>& f) const;
  // Their owner has taken them back; those that are being moved stay until that is over.
  void forget_chunks() noexcept {
    chunks_.clear();
    posting_ = 0;
  }
  void forget_region(uint64_t id) { registrations_.forget(id); }
  uint64_t finished() const { return finished_; }  // requests
  uint64_t progress() const { return progress_; }  // also parts of requests
  // Requests; any thread.
  uint64_t posted() const { return posted_.load(std::memory_order_relaxed); }
  uint64_t consumed() const { return consumed_.load(std::memory_order_relaxed); }
  const Occupancy& occupancy() const { return occupancy_; }
  // False: moves still read the plugin's pages, so the comm stays; call again. Nothing is posted or
  // delivered any more.
  bool close();

 private:
  struct Queued {
    RxChunk* chunk;
    uint64_t posted;  // bytes
    uint64_t arrived;
  };
  struct Request {
    ReceiveState state = ReceiveState::kPosted;
    void* handle = nullptr;
    RxChunk* chunk = nullptr;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t ordinal = 0;
    Registrations::Slice* slice = nullptr;  // received straight into place
    uint64_t move = 0;
  };

  Status post_next(bool* posted);
  Status test_next();
  Status take_fragments(const Request& request);
  Status begin_move(Request& request);
  Status look_at_move(Request& request, Events* events);
  Status finish_oldest(Events& events);
  Status consume(Request& request);
  Status go(Request& request, ReceiveState to) const;

  CommSettings settings_;
  PluginCalls& calls_;
  Registrations registrations_;
  void* comm_ = nullptr;
  bool broke_ = false;
  bool unpacks_ = false;  // bytes come through the bounce pool
  bool consumes_ = false;
  nccl::UnpackHandle queue_{};
  uint64_t request_bytes_ = 0;
  // A slot: what receives are posted on that are dropped, or that come through the pool.
  uint8_t* scratch_ = nullptr;
  Registrations::Slice* scratch_slice_ = nullptr;
  std::deque<Queued> chunks_;
  size_t posting_ = 0;
  uint64_t ordinal_ = 0;  // counts every irecv: the slot in the unpack queue
  Ring<Request, nccl::kMaxRequests> requests_;
  // By slot of the unpack queue: as they were when they were checked, whatever the plugin does.
  std::vector<Fragment> fragments_[nccl::kUnpackSlots];
  int sequence_ = 0;
  size_t here_ = 0;  // of requests_: those that are not kPosted any more
  size_t moving_ = 0;
  Status broken_;  // why there will be no more
  uint64_t finished_ = 0;
  uint64_t progress_ = 0;
  std::atomic<uint64_t> posted_{0}, consumed_{0};
  Occupancy occupancy_;
};

}  // namespace tcpx::net
