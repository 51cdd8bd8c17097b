#include "path/net/send_comm.h"

#include <algorithm>

namespace tcpx::net {

SendComm::SendComm(const CommSettings& settings)
    : settings_(settings),
      calls_(settings.plugin->calls()),
      registrations_(calls_, settings.memory_type) {
  occupancy_.window = settings.window;
}

void SendComm::open(void* comm, uint64_t request_bytes) {
  comm_ = comm;
  request_bytes_ = request_bytes;
  registrations_.attach(comm);
}

bool SendComm::reaches(const TxFrame& frame) {
  return registrations_.cover(frame.payload, frame.regions, frame.header.payload_bytes,
                              request_bytes_);
}

// The next request of the oldest frame that has some left.
Status SendComm::post_next(bool* posted) {
  Queued& queued = frames_[posting_];
  const TxFrame& frame = *queued.frame;
  const uint64_t bytes = std::min(request_bytes_, frame.header.payload_bytes - queued.posted);
  uint8_t* data = nullptr;
  Request request;
  request.slice = registrations_.find({frame.payload, frame.regions, queued.posted, bytes}, &data);
  if (request.slice == nullptr) return lane_error(TCPX_PEER_DISCONNECTED, refusal());
  nccl::Result result =
      calls_.isend(comm_, data, bytes, sequence_, request.slice->mhandle, &request.handle);
  *posted = result == nccl::kSuccess && request.handle != nullptr;
  if (result != nccl::kSuccess) return plugin_error("isend", result, &broke_);
  if (!*posted) return {};
  ++request.slice->uses;
  sequence_ = (sequence_ + 1) & 0x7fffffff;
  requests_.push(request);
  posted_.fetch_add(1, std::memory_order_relaxed);
  queued.posted += bytes;
  ++queued.requests;
  if (queued.posted == frame.header.payload_bytes) ++posting_;
  return {};
}

Status SendComm::test_oldest(bool* done, const std::function<void(TxFrame*)>& sent) {
  const Request request = requests_.front();
  int finished = 0;
  nccl::Result result = calls_.test(request.handle, &finished, nullptr);
  if (result != nccl::kSuccess) return plugin_error("test (send)", result, &broke_);
  *done = finished != 0;
  if (!*done) return {};
  requests_.pop();
  ++finished_;
  registrations_.release(request.slice);
  Queued& oldest = frames_.front();
  if (--oldest.requests > 0 || oldest.posted < oldest.frame->header.payload_bytes) return {};
  TxFrame* frame = oldest.frame;
  frames_.pop_front();
  --posting_;
  sent(frame);
  return {};
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

}  // namespace tcpx::net
