// Agent name -> session. A name can have one session after the other (invalidated and loaded
// again, restarted under the same name), so each is an object of its own that requests share; a
// request of an old one must not be taken for news about the current one.
#pragma once

#include <tcpx/tcpx.h>

#include <atomic>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

#include "farewells.h"
#include "rates.h"

namespace tcpx_nixl {

struct Connection {
  Connection(std::string name, std::string blob, tcpx_peer id)
      : agent(std::move(name)), info(std::move(blob)), peer(id) {}
  const std::string agent;
  const std::string info;
  const tcpx_peer peer;
  mutable Rates rates;
  mutable std::atomic<bool> loss_reported{false};
};
using ConnectionPtr = std::shared_ptr<const Connection>;

class Connections {
 public:
  // `self` is the name by which the agent addresses itself, with `self_info`: the engine connects
  // to itself the first time that is asked for.
  Connections(tcpx_engine* engine, std::string self, std::string self_info)
      : engine_(engine), self_(std::move(self)), self_info_(std::move(self_info)) {}

  // Starts connecting; never blocks. Again with the same info: nothing to do while that session
  // lives; otherwise the new one takes the old one's place.
  tcpx_code load(const std::string& agent, const std::string& info);
  // Null if never loaded.
  ConnectionPtr find(const std::string& agent);
  // Its transfers end soon; to wait for that, release them.
  void drop(const std::string& agent);
  // TCPX_OK, TCPX_IN_PROGRESS or how the session ended; TCPX_NOT_FOUND: it was dropped.
  tcpx_code state_of(const Connection& connection) const;
  // Neither dropped nor replaced: what is posted on it may go.
  bool is_current(const Connection& connection) const;
  // The agent's name belongs to a newer session.
  bool replaced(const Connection& connection) const;

 private:
  tcpx_code load(const std::string& agent, const std::string& info, const Connection* instead_of);
  bool alive(const Connection& connection) const;
  bool worth_another(const Connection& connection) const;
  ConnectionPtr look_up(const std::string& agent) const;

  tcpx_engine* const engine_;
  const std::string self_;
  const std::string self_info_;
  mutable std::shared_mutex mu_;
  std::map<std::string, ConnectionPtr> current_;
  Farewells farewells_;
};

}  // namespace tcpx_nixl
