#include "engine/addresses.h"

#include <algorithm>
#include <set>

#include "session/sockets.h"

namespace tcpx {

Status Addresses::open(const EngineOptions& options, std::vector<Fd>* listeners) {
  if (Status status = list_local_addresses(&all_); !status) return status;
  if (Status status = choose_addresses(options.interfaces, all_, &used_); !status) return status;
  PortRange ports;
  if (Status status = parse_port_range(options.port_range, &ports); !status) return status;

  std::vector<wire::Address> bind_to;
  wire::Address asked;
  bool wildcard = false;
  if (!options.listen.empty()) {
    if (Status status = parse_ip(options.listen, &asked); !status) return status;
    bind_to.push_back(asked);
    wildcard = options.listen == "0.0.0.0" || options.listen == "::";
  } else {
    for (const LocalAddress& local : used_) bind_to.push_back(local.address);
  }
  for (const wire::Address& address : bind_to) {
    if (listeners->size() == wire::kMaxAddresses) break;
    Fd fd;
    wire::Address bound;
    if (Status status = open_listener(address, ports, &fd, &bound); !status) return status;
    listeners->push_back(std::move(fd));
    advertise(bound, wildcard);
  }
  if (!options.advertise.empty()) {
    wire::Address advertise;
    if (Status status = parse_ip(options.advertise, &advertise); !status) return status;
    advertise.port = advertised_.empty() ? 0 : advertised_.front().port;
    advertised_ = {advertise};
  }
  if (advertised_.size() > wire::kMaxAddresses) advertised_.resize(wire::kMaxAddresses);
  return {};
}

void Addresses::advertise(const wire::Address& listener, bool wildcard) {
  if (!wildcard) return advertised_.push_back(listener);
  for (const LocalAddress& local : used_) {
    if (is_v4(local.address) != is_v4(listener)) continue;
    advertised_.push_back(local.address);
    advertised_.back().port = listener.port;
  }
}

uint32_t Addresses::interfaces_used() const {
  std::set<std::string> interfaces;
  for (const LocalAddress& local : used_) interfaces.insert(local.interface);
  return static_cast<uint32_t>(interfaces.size());
}

std::vector<std::string> Addresses::interfaces_unused() const {
  std::set<std::string> interfaces;
  for (const LocalAddress& local : all_) interfaces.insert(local.interface);
  for (const LocalAddress& local : used_) interfaces.erase(local.interface);
  return {interfaces.begin(), interfaces.end()};
}

bool Addresses::on_this_host(const wire::Address& address) const {
  return std::any_of(all_.begin(), all_.end(),
                     [&](const LocalAddress& local) { return local.address.ip == address.ip; });
}

std::string Addresses::interface_of(int fd) const {
  wire::Address here = local_address_of(fd);
  for (const LocalAddress& local : all_)
    if (local.address.ip == here.ip) return local.interface;
  return ip_to_string(here);
}

}  // namespace tcpx
