// The path that is always there: payload in the lane's own stream.
#pragma once

#include "path/path.h"

namespace tcpx {

class TcpPath final : public Path {
 public:
  static PathProbe probe(const EngineOptions& options, const Log& log);

  LaneTraits traits() const override { return {}; }
  bool offer(const PathPeer&) const override { return true; }
  std::unique_ptr<Lane> make_lane(LaneParts parts, Loop& loop, LaneSink& sink) const override;
};

}  // namespace tcpx
