#include "topo/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/log.h"
#include "base/units.h"

namespace tcpx {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr uint8_t kMappedBits = 96;
constexpr std::string_view kBridgePrefixes[] = {"docker", "virbr"};

wire::Address from_v4(const in_addr& in) {
  wire::Address out;
  std::copy(kMapped.begin(), kMapped.end(), out.ip.begin());
  std::memcpy(out.ip.data() + kMapped.size(), &in, sizeof in);
  return out;
}

wire::Address from_v6(const in6_addr& in) {
  wire::Address out;
  std::memcpy(out.ip.data(), &in, sizeof in);
  return out;
}

int count_bits(const void* mask, size_t bytes) {
  int bits = 0;
  for (size_t i = 0; i < bytes; ++i) bits += std::popcount(static_cast<const uint8_t*>(mask)[i]);
  return bits;
}

bool is_loopback(const wire::Address& a) {
  if (is_v4(a)) return a.ip[12] == 127;
  return std::all_of(a.ip.begin(), a.ip.end() - 1, [](uint8_t b) { return b == 0; }) &&
         a.ip[15] == 1;
}

bool is_link_local(const wire::Address& a) {
  if (is_v4(a)) return a.ip[12] == 169 && a.ip[13] == 254;
  return a.ip[0] == 0xfe && (a.ip[1] & 0xc0) == 0x80;
}

bool is_bridge(std::string_view interface) {
  return std::any_of(std::begin(kBridgePrefixes), std::end(kBridgePrefixes),
                     [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

// An IPv6 link-local address means nothing without the interface, which no Address carries.
bool unreachable_by_address(const LocalAddress& local) {
  return local.link_local && !is_v4(local.address);
}

bool to_local(const ifaddrs& entry, LocalAddress* out) {
  if (entry.ifa_addr == nullptr || !(entry.ifa_flags & IFF_UP)) return false;
  const void* mask = nullptr;
  if (entry.ifa_addr->sa_family == AF_INET) {
    out->address = from_v4(reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr);
    if (entry.ifa_netmask) mask = &reinterpret_cast<sockaddr_in*>(entry.ifa_netmask)->sin_addr;
    int bits = mask ? count_bits(mask, sizeof(in_addr)) : 32;
    out->address.prefix_length = static_cast<uint8_t>(kMappedBits + bits);
  } else if (entry.ifa_addr->sa_family == AF_INET6) {
    out->address = from_v6(reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr)->sin6_addr);
    if (entry.ifa_netmask) mask = &reinterpret_cast<sockaddr_in6*>(entry.ifa_netmask)->sin6_addr;
    out->address.prefix_length =
        static_cast<uint8_t>(mask ? count_bits(mask, sizeof(in6_addr)) : 128);
  } else {
    return false;
  }
  // Old-style IPv4 aliases carry a label ("eth0:1"); the interface is still eth0.
  std::string_view name = entry.ifa_name;
  out->interface = name.substr(0, name.find(':'));
  out->loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0 || is_loopback(out->address);
  out->link_local = is_link_local(out->address);
  return true;
}

// Do the first `bits` bits agree?
bool same_prefix(const wire::Address& a, const wire::Address& b, int bits) {
  bits = std::clamp(bits, 0, 128);
  auto whole = static_cast<size_t>(bits / 8);
  if (!std::equal(a.ip.begin(), a.ip.begin() + static_cast<ptrdiff_t>(whole), b.ip.begin())) {
    return false;
  }
  if (bits % 8 == 0) return true;
  int mask = 0xff00 >> (bits % 8) & 0xff;
  return ((a.ip[whole] ^ b.ip[whole]) & mask) == 0;
}

// "10.0.0.0/16" -> network with prefix_length; a plain address is a network of one.
bool parse_network(std::string_view text, wire::Address* out) {
  size_t slash = text.find('/');
  wire::Address address;
  if (!parse_ip(text.substr(0, slash), &address)) return false;
  bool v4 = text.substr(0, slash).find(':') == std::string_view::npos;
  uint64_t most = v4 ? 32 : 128, bits = most;
  if (slash != std::string_view::npos) {
    if (!parse_count(text.substr(slash + 1), &bits) || bits > most) return false;
  }
  address.prefix_length = static_cast<uint8_t>(bits + (v4 ? kMappedBits : 0));
  *out = address;
  return true;
}

// "eth0 10.0.0.1/24, lo 127.0.0.1/8"
std::string list_text(const std::vector<LocalAddress>& all) {
  std::string out;
  for (const LocalAddress& local : all) {
    int bits = local.address.prefix_length - (is_v4(local.address) ? kMappedBits : 0);
    out += strf("{}{} {}/{}", out.empty() ? "" : ", ", escaped(local.interface),
                ip_to_string(local.address), std::max(bits, 0));
  }
  return out.empty() ? "none" : out;
}

std::vector<LocalAddress> choose_auto(const std::vector<LocalAddress>& all) {
  std::vector<LocalAddress> chosen, loopback;
  for (const LocalAddress& local : all) {
    if (local.link_local) continue;
    if (local.loopback) {
      loopback.push_back(local);
    } else if (!is_bridge(local.interface)) {
      chosen.push_back(local);
    }
  }
  return chosen.empty() ? loopback : chosen;
}

bool already_in(const std::vector<LocalAddress>& list, const LocalAddress& local) {
  return std::any_of(list.begin(), list.end(), [&](const LocalAddress& other) {
    return other.interface == local.interface && other.address == local.address;
  });
}

// Adds what one item of the list means.
Status choose_item(std::string_view item, const std::vector<LocalAddress>& all,
                   std::vector<LocalAddress>* out) {
  wire::Address network;
  bool is_network = parse_network(item, &network);
  bool found = false, unreachable = false;
  for (const LocalAddress& local : all) {
    bool match = is_network ? is_v4(local.address) == is_v4(network) &&
                                  same_prefix(local.address, network, network.prefix_length)
                            : local.interface == item;
    if (!match) continue;
    if (unreachable_by_address(local)) {
      unreachable = true;
      continue;
    }
    found = true;
    if (!already_in(*out, local)) out->push_back(local);
  }
  if (found) return {};
  return bad_call(TCPX_BAD_CONFIG,
                  strf("interfaces: \"{}\" {}; there are: {}", escaped(item),
                       unreachable ? "has only link-local IPv6 addresses, which peers "
                                     "cannot connect to"
                                   : "is no local interface that is up, address or network",
                       list_text(all)));
}

Status bad_endpoint(std::string_view text, std::string_view why) {
  return bad_call(TCPX_INVALID_ARGUMENT,
                  strf("\"{}\" {}, e.g. 10.0.0.1:20000, [fd00::1]:20000 or node7:20000",
                       escaped(text.substr(0, 300)), why));
}

Status resolve(const std::string& host, std::vector<wire::Address>* out) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  int error = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(error == 0 ? list : nullptr,
                                                       [](addrinfo* l) {
                                                         if (l) freeaddrinfo(l);
                                                       });
  // In the system's order of preference. Link-local IPv6 would need a scope.
  for (const addrinfo* entry = owner.get(); entry != nullptr; entry = entry->ai_next) {
    wire::Address address;
    if (entry->ai_family == AF_INET) {
      address = from_v4(reinterpret_cast<const sockaddr_in*>(entry->ai_addr)->sin_addr);
    } else if (entry->ai_family == AF_INET6) {
      address = from_v6(reinterpret_cast<const sockaddr_in6*>(entry->ai_addr)->sin6_addr);
      if (is_link_local(address)) continue;
    } else {
      continue;
    }
    if (std::find(out->begin(), out->end(), address) == out->end()) out->push_back(address);
  }
  if (!out->empty()) return {};
  return bad_call(TCPX_CONNECT_FAILED,
                  strf("host \"{}\" cannot be resolved: {}", escaped(host),
                       error == 0 ? "no usable address" : gai_strerror(error)));
}

}  // namespace

bool is_v4(const wire::Address& address) {
  return std::equal(kMapped.begin(), kMapped.end(), address.ip.begin());
}

Status list_local_addresses(std::vector<LocalAddress>* out) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return Status::system(errno, TCPX_BLAST_NOTHING, "getifaddrs");
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  out->clear();
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    LocalAddress local;
    if (to_local(*entry, &local)) out->push_back(std::move(local));
  }
  return {};
}

Status choose_addresses(std::string_view spec, const std::vector<LocalAddress>& all,
                        std::vector<LocalAddress>* out) {
  std::vector<LocalAddress> chosen;
  if (spec == "auto") {
    chosen = choose_auto(all);
    if (chosen.empty()) {
      return bad_call(TCPX_BAD_CONFIG, strf("interfaces=auto finds no usable address, not "
                                            "even loopback; there are: {}",
                                            list_text(all)));
    }
    *out = std::move(chosen);
    return {};
  }
  for (;;) {
    size_t comma = spec.find(',');
    if (Status s = choose_item(spec.substr(0, comma), all, &chosen); !s) return s;
    if (comma == std::string_view::npos) break;
    spec.remove_prefix(comma + 1);
  }
  *out = std::move(chosen);
  return {};
}

std::string ip_to_string(const wire::Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_v4(address)) {
    inet_ntop(AF_INET, address.ip.data() + kMapped.size(), text, sizeof text);
  } else {
    inet_ntop(AF_INET6, address.ip.data(), text, sizeof text);
  }
  return text;
}

std::string to_string(const wire::Address& address) {
  std::string ip = ip_to_string(address);
  return is_v4(address) ? strf("{}:{}", ip, address.port) : strf("[{}]:{}", ip, address.port);
}

Status parse_ip(std::string_view text, wire::Address* out) {
  std::string name(text);
  in_addr v4;
  in6_addr v6;
  bool has_nul = text.find('\0') != std::string_view::npos;
  if (!has_nul && inet_pton(AF_INET, name.c_str(), &v4) == 1) {
    *out = from_v4(v4);
  } else if (!has_nul && inet_pton(AF_INET6, name.c_str(), &v6) == 1) {
    *out = from_v6(v6);
  } else {
    return bad_call(
        TCPX_INVALID_ARGUMENT,
        strf("\"{}\" is not an IP address, e.g. 10.0.0.1 or fd00::1", escaped(text.substr(0, 80))));
  }
  return {};
}

Status split_endpoint(std::string_view text, Endpoint* out) {
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad_endpoint(text, "has no port");
  std::string_view host = text.substr(0, colon);
  uint64_t port = 0;
  if (!parse_count(text.substr(colon + 1), &port) || port > 65535) {
    return bad_endpoint(text, "has no port within 0..65535 after its last colon");
  }
  wire::Address address;
  bool is_address = true;
  if (host.starts_with('[') && host.ends_with(']')) {
    if (Status s = parse_ip(host.substr(1, host.size() - 2), &address); !s) return s;
  } else if (host.empty() || host.find('\0') != std::string_view::npos || host.size() > 253) {
    return bad_endpoint(text, "has no host");
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return bad_endpoint(text, "needs a pair of brackets around its IPv6 address");
  } else {
    is_address = parse_ip(host, &address).ok();
  }
  address.port = static_cast<uint16_t>(port);
  *out = {std::string(host), address.port, {}};
  if (is_address) out->address = address;
  return {};
}

Status lookup_host(const std::string& host, uint16_t port, std::vector<wire::Address>* out) {
  std::vector<wire::Address> found;
  if (Status s = resolve(host, &found); !s) return s;
  for (wire::Address& address : found) address.port = port;
  *out = std::move(found);
  return {};
}

Status resolve_endpoint(std::string_view text, std::vector<wire::Address>* out) {
  Endpoint endpoint;
  if (Status s = split_endpoint(text, &endpoint); !s) return s;
  if (!endpoint.address) return lookup_host(endpoint.host, endpoint.port, out);
  *out = {*endpoint.address};
  return {};
}

Status parse_endpoint(std::string_view text, wire::Address* out) {
  std::vector<wire::Address> all;
  if (Status s = resolve_endpoint(text, &all); !s) return s;
  *out = all.front();
  return {};
}

bool same_network(const wire::Address& a, const wire::Address& b) {
  if (is_v4(a) != is_v4(b)) return false;
  if (a.prefix_length == 0 && b.prefix_length == 0) return false;
  // Each has to lie in the other's network, so the longer prefix decides.
  return same_prefix(a, b, std::max(a.prefix_length, b.prefix_length));
}

}  // namespace tcpx
