// The sending end of a comm: credits and order. What it is given lies in one part for every request
// of it and can be registered (reaches()); else it is in a slot by now, which can.
//
// Rules of the contract that live here: at most 16 requests per comm; tested is the oldest one; a
// request with success and no handle is tried again later.
#pragma once

#include <deque>
#include <functional>

#include "path/lane.h"
#include "path/net/comm.h"
#include "path/net/registrations.h"
#include "path/net/ring.h"

namespace tcpx::net {

class SendComm {
 public:
  explicit SendComm(const CommSettings& settings);
  ~SendComm() { close(); }

  void open(void* comm, uint64_t request_bytes);
  bool is_open() const { return comm_ != nullptr; }
  bool broke() const { return broke_; }  // a call on it failed
  // Whether the plugin can send it from where it lies.
  bool reaches(const TxFrame& frame);
  const std::string& refusal() const { return registrations_.refusal(); }  // why not, of a slot
  void add(TxFrame* frame) { frames_.push_back({frame, 0, 0}); }
  // Posts and tests. `sent` is called for each frame whose memory is free again.
  Status poll(const std::function<void(TxFrame*)>& sent);

  bool idle() const { return frames_.empty(); }
  size_t queued_frames() const { return frames_.size(); }
  void forget_region(uint64_t id) { registrations_.forget(id); }
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
    Registrations::Slice* slice = nullptr;
  };

  Status post_next(bool* posted);
  Status test_oldest(bool* done, const std::function<void(TxFrame*)>& sent);

  CommSettings settings_;
  PluginCalls& calls_;
  Registrations registrations_;
  void* comm_ = nullptr;
  bool broke_ = false;
  uint64_t request_bytes_ = 0;
  std::deque<Queued> frames_;  // not all sent
  size_t posting_ = 0;         // index in frames_ of the one being posted
  Ring<Request, nccl::kMaxRequests> requests_;
  int sequence_ = 0;
  uint64_t finished_ = 0;
  std::atomic<uint64_t> posted_{0};
  Occupancy occupancy_;
};

}  // namespace tcpx::net
