// The two benches talk in small JSON documents carried by the engine's notifications: the client
// asks, the server answers. So control needs no port and no authentication of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "api.h"
#include "base/clock.h"

namespace tcpx::tool {

inline constexpr int kBenchProtocol = 2;

// An engine with spdlog on stderr behind its log callback. Throws Failure.
Engine make_engine(const std::vector<std::pair<std::string, std::string>>& options,
                   const std::string& who);

// Called while waiting; throws when the other side is known to be gone.
using AliveCheck = std::function<void()>;

class Control {
 public:
  Control(Engine& engine, tcpx_peer peer, AliveCheck alive);

  tcpx_peer peer() const { return peer_; }
  // Client. A refusal or a lost server is a Failure.
  Json request(const std::string& what, Json body = Json::object(), Nanos timeout = kPatience);
  uint64_t send(const std::string& what, Json body = Json::object());
  Json await(uint64_t id, Nanos timeout = kPatience);

  // Server. False: nothing came in time.
  bool receive(Json* request, Nanos timeout);
  void reply(const Json& request, Json body);
  void refuse(const Json& request, int exit_code, const std::string& text);

  // Throws if the connection to the other side has ended.
  void check_peer();

  static constexpr Nanos kPatience = 30 * kSecond;

 private:
  void post(const Json& message);
  bool next(Json* message, Nanos timeout);

  Engine& engine_;
  tcpx_peer peer_;
  AliveCheck alive_;
  uint64_t last_id_ = 0;
};

// User and system time of this process so far.
double cpu_seconds();

std::string to_hex(const uint8_t* bytes, size_t length);
Bytes from_hex(const std::string& text);  // throws Failure

}  // namespace tcpx::tool
