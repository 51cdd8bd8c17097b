// Where an engine is: the addresses of this host, those that the engine uses, and those that peers
// are told. Found when the engine starts, and the same from then on.
#pragma once

#include <string>
#include <vector>

#include "base/fd.h"
#include "config/options.h"
#include "topo/interfaces.h"
#include "wire/handshake.h"

namespace tcpx {

class Addresses {
 public:
  // Finds them, by the options, and listens at those that are used.
  Status open(const EngineOptions& options, std::vector<Fd>* listeners);

  // By the `interfaces` option.
  const std::vector<LocalAddress>& used() const { return used_; }
  // For peers, with ports.
  const std::vector<wire::Address>& advertised() const { return advertised_; }
  uint32_t interfaces_used() const;
  std::vector<std::string> interfaces_unused() const;

  bool on_this_host(const wire::Address& address) const;
  // That a socket goes through.
  std::string interface_of(int fd) const;

 private:
  // What peers are told of a listener there.
  void advertise(const wire::Address& listener, bool wildcard);

  std::vector<LocalAddress> all_;  // of the host, to name interfaces
  std::vector<LocalAddress> used_;
  std::vector<wire::Address> advertised_;
};

}  // namespace tcpx
