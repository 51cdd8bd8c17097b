#include "engine/dialler.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace tcpx {

Status Dialler::connect(std::span<const uint8_t> bytes, uint64_t* peer) {
  wire::ConnectionInfo info;
  ConnectTarget target;
  target.keys.resize(1);
  if (Status status = keys_.open_info(bytes, &info, &target.keys[0]); !status) return status;
  target.addresses = info.addresses;
  target.uid = info.uid;
  return start(std::move(target), peer);
}

Status Dialler::connect_address(const std::string& address, uint64_t* peer) {
  ConnectTarget target;
  if (Status status = keys_.address_keys(&target.keys); !status) return status;
  Endpoint endpoint;
  if (Status status = split_endpoint(address, &endpoint); !status) return status;
  if (endpoint.port == 0)
    return bad_call(TCPX_INVALID_ARGUMENT,
                    strf("\"{}\": port 0 cannot be connected to", escaped(address)));
  if (endpoint.address) {
    target.addresses = {*endpoint.address};
  } else if (Status status = Lookup::start(endpoint.host, endpoint.port, host_.service.share_wake(),
                                           &target.lookup);
             !status) {
    return status;
  }
  target.retry = true;
  return start(std::move(target), peer);
}

Status Dialler::start(ConnectTarget target, uint64_t* id) {
  std::shared_ptr<Peer> peer = peers_.add(false);
  try {
    host_.service.defer([this, peer, target = std::move(target)]() mutable {
      peer->ending().or_fail([&] {
        auto connector = std::make_shared<Connector>(host_, peer, std::move(target));
        connectors_.push_back(connector);
        connector->start();
      });
    });
  } catch (...) {
    peers_.take_back(*peer);
    throw;
  }
  *id = peer->id();
  return {};
}

void Dialler::tick(Nanos now) noexcept {
  for (size_t i = 0; i < connectors_.size(); ++i) connectors_[i]->tick(now);
  std::erase_if(connectors_, [](auto& connector) { return connector->finished(); });
}

Nanos Dialler::wants_tick() const {
  Nanos first = kNever;
  for (auto& connector : connectors_) first = std::min(first, connector->wants_tick());
  return first;
}

}  // namespace tcpx
