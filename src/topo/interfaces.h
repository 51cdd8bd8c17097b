// Local network interfaces and the choice the `interfaces` option makes among their addresses.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "wire/handshake.h"

namespace tcpx {

struct LocalAddress {
  std::string interface;  // "eth1"
  wire::Address address;  // port 0, prefix_length in the v6-mapped form (v4 /24 -> 120)
  bool loopback = false;
  bool link_local = false;
};

// All addresses of interfaces that are up (getifaddrs). Link-local ones are included and marked.
Status list_local_addresses(std::vector<LocalAddress>* out);

// `spec`: "auto" = every global address of every up interface but loopback and docker*/virbr*
// bridges, loopback if there is no other; else a comma list of interface names (exact), addresses
// and CIDRs. One that matches nothing is TCPX_BAD_CONFIG and lists what there is. Pure.
Status choose_addresses(std::string_view spec, const std::vector<LocalAddress>& all,
                        std::vector<LocalAddress>* out);

// Text <-> address. parse_endpoint takes "1.2.3.4:5", "[::1]:5", "host:5" (resolves).
std::string to_string(const wire::Address& address);     // "10.0.0.1:5" / "[::1]:5"
std::string ip_to_string(const wire::Address& address);  // without port
Status parse_ip(std::string_view text, wire::Address* out);
Status parse_endpoint(std::string_view text, wire::Address* out);
// The parts of an endpoint, without asking anybody: `address` is set if the host is one.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
  std::optional<wire::Address> address;
};
Status split_endpoint(std::string_view text, Endpoint* out);
// All addresses of a name, in the system's order of preference. Blocks as long as the resolver
// does.
Status lookup_host(const std::string& host, uint16_t port, std::vector<wire::Address>* out);
Status resolve_endpoint(std::string_view text, std::vector<wire::Address>* out);
bool same_network(const wire::Address& a, const wire::Address& b);  // by a's and b's prefix lengths
bool is_v4(const wire::Address& address);

}  // namespace tcpx
