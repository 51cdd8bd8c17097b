// What a hello has to show before anything is spent on whoever said it.
#pragma once

#include <array>

#include "base/status.h"
#include "session/auth.h"
#include "wire/handshake.h"

namespace tcpx {

// What the accepting engine knows. Any thread.
class GreetingHost {
 public:
  virtual ~GreetingHost() = default;
  virtual bool requires_auth() const = 0;
  virtual wire::Uid uid() const = 0;
  // Key the client has to know: the engine's for a new session, the session's for a joining lane.
  virtual Status key_for(const wire::Hello& hello, auth::Key* key) = 0;
};

// A hello that is worth a handshake.
struct Greeting {
  wire::Hello hello;
  std::array<uint8_t, wire::kHelloBytes> bytes{};
  auth::Key key;  // that its knock was made with, and that it has to prove
};

// One HMAC at most. TCPX_PROTOCOL_ERROR: it is no hello at all, and gets no answer.
Status read_greeting(GreetingHost& host, auth::HelloBytes bytes, Greeting* out);

// What a client is told whose hello is refused with `status`; `hello` is what could be read of it.
wire::Challenge refusing_challenge(const GreetingHost& host, const wire::Hello& hello,
                                   const Status& status);

}  // namespace tcpx
