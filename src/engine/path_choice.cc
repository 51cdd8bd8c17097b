#include "engine/path_choice.h"

#include "base/text.h"
#include "engine/report.h"
#include "session/sockets.h"

namespace tcpx {

Status PathChoice::open() {
  shared_.path_wish = PathWish::of(path_table(), shared_.options);
  return paths_.open(shared_.options, shared_.path_wish, shared_.log);
}

wire::PathMask PathChoice::offer(const wire::Address& remote) const {
  return paths_.offer({addresses_.on_this_host(remote)});
}

Status PathChoice::adopt_lane(Peer& peer, uint32_t index, Handshake& handshake) const {
  const wire::PathMask both = handshake.welcome().paths & offer(remote_address_of(handshake.fd()));
  const Path* path = paths_.choose(both);
  if (path == nullptr)
    return lane_error(TCPX_PATH_UNAVAILABLE,
                      strf("the peer offers lane {} none of our paths", index));
  return peer.add_lane(index, lane_factory(*path, peer, index, handshake), path->traits());
}

LaneFactory PathChoice::lane_factory(const Path& path, const Peer& peer, uint32_t index,
                                     Handshake& handshake) const {
  StreamSettings stream;
  // What is longer than our own limit is discarded and answered, not a breach of the protocol.
  stream.limits.max_notify_bytes = wire::kMaxNotifyBytes;
  stream.interface = addresses_.interface_of(handshake.fd());
  stream.remote = handshake.remote();
  stream.socket_buffer = shared_.options.socket_buffer;
  stream.same_host = addresses_.on_this_host(remote_address_of(handshake.fd()));
  auto fd = std::make_shared<Fd>(handshake.take_fd());
  return [&path, stream, fd, index, key = peer.identity().session_key](Loop& loop, LaneSink& sink) {
    return path.make_lane({std::move(*fd), stream, index, key.bytes()}, loop, sink);
  };
}

void PathChoice::connected(Peer& peer) const {
  shared_.counters.peers_connected.fetch_add(1);
  const Peer::Notes notes = peer.notes();
  const std::string path = path_of(peer);
  shared_.log.info("peer {} \"{}\" ({}): path {}, {} lanes via {}{}{}", peer.id(),
                   escaped(peer.name()), peer.inbound ? "came to us" : "connected", path,
                   peer.live_lanes(), interfaces_of(peer), paths_.why_not_better(path, notes.path),
                   notes.connect.empty() ? "" : "; lanes missing: " + notes.connect);
}

}  // namespace tcpx
