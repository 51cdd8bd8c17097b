#include "engine/reception.h"

#include <algorithm>

#include "base/text.h"

namespace tcpx {

Status Reception::key_for(const wire::Hello& hello, auth::Key* key) {
  return hello.kind == wire::HelloKind::kNewSession ? keys_.key_of_client(hello.key_id, key)
                                                    : peers_.key_of_joined(hello, key);
}

Status Reception::welcome_for(const wire::Hello& hello, const wire::Address& remote,
                              const auth::Key& session_key, wire::Welcome* welcome) {
  const EngineOptions& options = shared_.options;
  welcome->lanes = std::min(hello.lanes, wire::kMaxLanes);
  welcome->chunk_bytes = options.chunk_bytes;
  welcome->window = hello.window == 0 ? options.window : std::min(hello.window, options.window);
  welcome->name = options.name;
  welcome->epoch = shared_.epoch.load();
  welcome->addresses = addresses_.advertised();
  welcome->paths = hello.paths & paths_.offer(remote);
  if (welcome->paths == 0)
    return peer_error(
        TCPX_PATH_UNAVAILABLE,
        strf("there is no path that both this engine and the client have and allow: {}",
             shared_.path_wish.text()));
  if (hello.kind == wire::HelloKind::kNewSession)
    return peers_.open_session(hello.uid, session_key, &welcome->session);
  std::shared_ptr<Peer> peer = peers_.find_joined(hello);
  if (peer == nullptr || !peer->may_join(hello.lane))
    return lane_error(TCPX_NOT_FOUND,
                      strf("session ended, or lane {} is not one that is due", hello.lane));
  welcome->session = hello.session;
  return {};
}

void Reception::accepted(Handshake& handshake) {
  if (handshake.hello().kind == wire::HelloKind::kJoinLane)
    lane_joins(handshake);
  else
    peer_arrives(handshake);
}

void Reception::lane_joins(Handshake& handshake) {
  const wire::Hello& hello = handshake.hello();
  std::shared_ptr<Peer> peer = peers_.find_joined(hello);
  if (peer == nullptr) return;
  if (Status status = paths_.adopt_lane(*peer, hello.lane, handshake); !status)
    shared_.log.warn("lane {} from {}: {}", hello.lane, handshake.remote(), status.to_string());
}

void Reception::peer_arrives(Handshake& handshake) {
  const wire::Hello& hello = handshake.hello();
  const wire::Welcome& welcome = handshake.welcome();
  std::shared_ptr<Peer> peer = peers_.add(true);
  peer->expect_lanes(welcome.lanes);
  peer->established({hello.uid, welcome.session, shared_.options.chunk_bytes, welcome.window,
                     handshake.session_key()},
                    hello.name);
  peer->epochs().start(hello.epoch, welcome.epoch);
  peers_.set_peer(welcome.session, peer);
  peer->ending().or_fail([&] {
    if (Status status = paths_.adopt_lane(*peer, 0, handshake); !status)
      return peer->ending().begin(status);
    auto on_up = [this, weak = std::weak_ptr<Peer>(peer)] {
      std::shared_ptr<Peer> up = weak.lock();
      if (up == nullptr) return;
      paths_.connected(*up);
      peers_.arrived(*up);
    };
    peer->connected(on_up, "");
  });
}

}  // namespace tcpx
