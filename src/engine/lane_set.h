// A peer's lanes, by index. They go with the last who uses them: an ended peer lets its lanes go,
// but another thread may be in the middle of a call on one.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "engine/peer_lane.h"
#include "wire/handshake.h"

namespace tcpx {

// Guarded by the peer's mutex, like what it stands in for.
class LaneSet {
 public:
  size_t size() const { return lanes_->size(); }
  std::unique_ptr<PeerLane>& operator[](size_t index) { return (*lanes_)[index]; }
  const std::unique_ptr<PeerLane>& operator[](size_t index) const { return (*lanes_)[index]; }
  auto begin() const { return lanes_->begin(); }
  auto end() const { return lanes_->end(); }
  void resize(size_t size) { lanes_->resize(size); }
  // Whoever uses a lane without the peer's mutex, and is not in its loop, has this meanwhile.
  LanesKept keep() const { return lanes_; }
  void let_go() { lanes_ = std::make_shared<std::vector<std::unique_ptr<PeerLane>>>(); }

 private:
  std::shared_ptr<std::vector<std::unique_ptr<PeerLane>>> lanes_ =
      std::make_shared<std::vector<std::unique_ptr<PeerLane>>>();
};

// Some of them, without an allocation.
class LaneList {
 public:
  LaneList() = default;
  explicit LaneList(LanesKept kept) : kept_(std::move(kept)) {}
  void add(PeerLane* lane) { lanes_[size_++] = lane; }
  size_t size() const { return size_; }
  PeerLane* const* begin() const { return lanes_.data(); }
  PeerLane* const* end() const { return lanes_.data() + size_; }
  const LanesKept& kept() const { return kept_; }

 private:
  std::array<PeerLane*, wire::kMaxLanes> lanes_{};
  size_t size_ = 0;
  LanesKept kept_;
};

}  // namespace tcpx
