#include "connections.h"

#include <mutex>

#include "status.h"

namespace tcpx_nixl {

tcpx_code Connections::state_of(const Connection& connection) const {
  tcpx_peer_info info{};
  tcpx_code code = tcpx_peer_get(engine_, connection.peer, &info);
  return code == TCPX_OK ? info.state : code;
}

bool Connections::alive(const Connection& connection) const {
  tcpx_code state = state_of(connection);
  return state == TCPX_OK || state == TCPX_IN_PROGRESS;
}

tcpx_code Connections::load(const std::string& agent, const std::string& info) {
  return load(agent, info, nullptr);
}

tcpx_code Connections::load(const std::string& agent, const std::string& info,
                            const Connection* instead_of) {
  ConnectionPtr old;
  {
    std::unique_lock lock(mu_);
    auto found = current_.find(agent);
    if (found != current_.end()) old = found->second;
    if (instead_of != nullptr && old.get() != instead_of) return TCPX_NOT_FOUND;  // dropped since
    if (old != nullptr && old->info == info && alive(*old)) return TCPX_OK;
    tcpx_peer peer = 0;
    tcpx_code code = tcpx_connect(engine_, info.data(), info.size(), &peer);
    if (code != TCPX_OK) return code;
    current_[agent] = std::make_shared<Connection>(agent, info, peer);
  }
  if (old != nullptr) farewells_.say(engine_, old->peer);
  return TCPX_OK;
}

ConnectionPtr Connections::look_up(const std::string& agent) const {
  std::shared_lock lock(mu_);
  auto found = current_.find(agent);
  return found == current_.end() ? nullptr : found->second;
}

ConnectionPtr Connections::find(const std::string& agent) {
  ConnectionPtr connection = look_up(agent);
  if (connection == nullptr && agent != self_) return nullptr;
  if (connection != nullptr && !worth_another(*connection)) return connection;
  if (load(agent, connection == nullptr ? self_info_ : connection->info, connection.get()) !=
      TCPX_OK)
    return connection;
  return look_up(agent);
}

// NIXL hears of a lost peer and has it loaded again. Of any other end (a plugin that hung, a limit)
// it hears an error of one transfer: the next one must not find the same dead session.
bool Connections::worth_another(const Connection& connection) const {
  if (alive(connection)) return false;
  return connection.agent == self_ || !is_peer_lost(state_of(connection));
}

void Connections::drop(const std::string& agent) {
  ConnectionPtr old;
  {
    std::unique_lock lock(mu_);
    auto found = current_.find(agent);
    if (found == current_.end()) return;
    old = std::move(found->second);
    current_.erase(found);
  }
  farewells_.say(engine_, old->peer);
}

bool Connections::is_current(const Connection& connection) const {
  return look_up(connection.agent).get() == &connection;
}

bool Connections::replaced(const Connection& connection) const {
  ConnectionPtr current = look_up(connection.agent);
  return current != nullptr && current.get() != &connection;
}

}  // namespace tcpx_nixl
