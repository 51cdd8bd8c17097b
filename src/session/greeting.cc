#include "session/greeting.h"

#include <algorithm>

namespace tcpx {

Status read_greeting(GreetingHost& host, auth::HelloBytes bytes, Greeting* out) {
  if (Status status = wire::decode(bytes, &out->hello); !status) return status;
  const wire::Hello& hello = out->hello;
  if (Status status = auth::check_mode(host.requires_auth(), hello.authenticated); !status)
    return status;
  if (hello.target_uid != wire::Uid{} && hello.target_uid != host.uid())
    return peer_error(TCPX_NOT_FOUND,
                      "the client asked for another engine; its connection info "
                      "is of an engine that has gone");
  if (Status status = host.key_for(hello, &out->key); !status) return status;
  std::copy(bytes.begin(), bytes.end(), out->bytes.begin());
  return host.requires_auth() ? auth::check_knock(out->key, bytes) : Status();
}

wire::Challenge refusing_challenge(const GreetingHost& host, const wire::Hello& hello,
                                   const Status& status) {
  wire::Challenge challenge;
  challenge.status = static_cast<uint16_t>(status.code());
  // That of a hello which is not understood for its versions is our newest.
  challenge.version = wire::common_version(hello.versions, {});
  challenge.authenticated = host.requires_auth();
  return challenge;
}

}  // namespace tcpx
