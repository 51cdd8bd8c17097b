#include "path/tcp/tcp_path.h"

#include "path/tcp/tcp_lane.h"

namespace tcpx {

PathProbe TcpPath::probe(const EngineOptions&, const Log&) {
  PathProbe out;
  out.path = std::make_unique<TcpPath>();
  return out;
}

std::unique_ptr<Lane> TcpPath::make_lane(LaneParts parts, Loop& loop, LaneSink& sink) const {
  return std::make_unique<TcpLane>(loop, sink, std::move(parts.fd), std::move(parts.stream));
}

}  // namespace tcpx
