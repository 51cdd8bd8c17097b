#include "nics.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>

#include "log.h"
#include "tcpx_emu.h"

namespace tcpx_emu {

namespace {

struct Interface {
  SocketAddress address;
  bool loopback = false;
};
using Interfaces = std::map<std::string, Interface>;  // alphabetical, as device indices are

// The first IPv4 address of each interface that is up, or else its first IPv6 address that others
// can use without knowing the interface.
Interfaces list_interfaces() {
  Interfaces out;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return out;
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if (!(entry->ifa_flags & IFF_UP)) continue;
      Interface found{};
      found.loopback = entry->ifa_flags & IFF_LOOPBACK;
      found.address.any.sa_family = static_cast<sa_family_t>(family);
      std::memcpy(&found.address, entry->ifa_addr, length_of(found.address));
      if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&found.address.v6.sin6_addr)) continue;
      out.emplace(entry->ifa_name, found);  // keeps the first
    }
  }
  return out;
}

int speed_of(const std::string& interface) {
  int speed = 0;
  if (FILE* file = std::fopen(("/sys/class/net/" + interface + "/speed").c_str(), "r")) {
    if (std::fscanf(file, "%d", &speed) != 1) speed = 0;
    std::fclose(file);
  }
  return speed > 0 ? speed : 10000;
}

std::string pci_path_of(const std::string& interface) {
  char path[PATH_MAX];
  return ::realpath(("/sys/class/net/" + interface + "/device").c_str(), path) ? path : "";
}

Nic make_nic(const std::string& name, const Interface& interface) {
  Nic nic;
  nic.name = name;
  nic.pci_path = pci_path_of(name);
  nic.speed = speed_of(name);
  nic.data = nic.control = interface.address;
  return nic;
}

// Nothing was asked for: all there are; docker's or the loopback only if there is nothing better.
std::vector<Nic> choose_unasked(const Interfaces& all) {
  std::vector<Nic> ordinary, docker, loopback;
  for (const auto& [name, interface] : all) {
    auto& group = interface.loopback ? loopback : name.starts_with("docker") ? docker : ordinary;
    group.push_back(make_nic(name, interface));
  }
  if (!ordinary.empty()) return ordinary;
  return docker.empty() ? loopback : docker;
}

std::string names_of(const Interfaces& all) {
  std::string out;
  for (const auto& [name, interface] : all) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "none" : out;
}

// TCPX_EMU_DEVICES: the same interface under many names.
std::vector<Nic> pretend(const Nic& nic, int64_t count) {
  std::vector<Nic> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back(nic);
    out.back().name = "emu" + std::to_string(i);
    out.back().pci_path.clear();
  }
  return out;
}

}  // namespace

bool matches(const std::string& spec, const std::string& name) {
  std::string_view rest = spec;
  bool exclude = rest.starts_with('^');
  if (exclude) rest.remove_prefix(1);
  bool exact = rest.starts_with('=');
  if (exact) rest.remove_prefix(1);
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    if (exact ? name == item : !item.empty() && name.starts_with(item)) return !exclude;
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
  }
  return exclude;
}

std::string find_nics(const Settings& settings, std::vector<Nic>* out) {
  Interfaces all = list_interfaces();
  std::vector<Nic> found;
  if (settings.interfaces.size() < 2) {
    found = choose_unasked(all);
  } else {
    for (const auto& [name, interface] : all)
      if (matches(settings.interfaces, name)) found.push_back(make_nic(name, interface));
  }
  if (found.empty()) return "no interface found; there are: " + names_of(all);
  if (settings.devices > 0) found = pretend(found.front(), settings.devices);
  if (found.size() > TCPX_EMU_MAX_DEVICES) found.resize(TCPX_EMU_MAX_DEVICES);

  if (!settings.control_interface.empty()) {
    auto control = std::find_if(all.begin(), all.end(), [&](const auto& entry) {
      return matches(settings.control_interface, entry.first);
    });
    if (control == all.end()) return "no ctrl interface found; there are: " + names_of(all);
    for (Nic& nic : found) nic.control = control->second.address;
  }
  *out = std::move(found);
  return {};
}

}  // namespace tcpx_emu
