#include "topo/binding_check.h"

#include <algorithm>

#include "base/log.h"
#include "config/options.h"

namespace tcpx::topo {
namespace {

std::vector<std::string> known_names(const PciMap& map, std::span<const std::string> devices) {
  std::vector<std::string> names(devices.begin(), devices.end());
  for (const Nic& nic : map.nics)
    if (std::find(names.begin(), names.end(), nic.name) == names.end()) names.push_back(nic.name);
  return names;
}

Status check_interface(std::string_view option, const Binding& binding,
                       const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), binding.interface) != names.end()) return {};
  std::string hint = nearest(binding.interface, names);
  return bad_call(TCPX_BAD_CONFIG,
                  strf("{}: this machine has no interface \"{}\"; did you mean \"{}\"? Change or "
                       "remove its entry; there are: {}",
                       option, escaped(binding.interface), hint, join(names, ", ")));
}

Status check_online(std::string_view option, const Binding& binding, const CpuSet& online) {
  CpuSet missing = binding.cpus & ~online;
  if (online.none() || missing.none()) return {};
  return bad_call(TCPX_BAD_CONFIG,
                  strf("{}: CPUs {} of {} are not online; write only CPUs of {}", option,
                       format_cpus(missing), binding.interface, format_cpus(online)));
}

// Empty, or which of them are far from the NIC.
std::string far_cpus(std::string_view option, const Binding& binding, const Nic& nic,
                     const MachineCpus& cpus) {
  auto near = cpus.node.find(nic.numa_node);
  if (near == cpus.node.end() || near->second.none()) return {};
  CpuSet far = binding.cpus & ~near->second;
  if (far.none()) return {};
  return strf("{}: CPUs {} of {} are not on its NUMA node {}, which has {}", option,
              format_cpus(far), binding.interface, nic.numa_node, format_cpus(near->second));
}

}  // namespace

Status check_bindings(std::string_view option, const Bindings& bindings, const PciMap& map,
                      const MachineCpus& cpus, std::span<const std::string> devices,
                      std::vector<std::string>* warnings) {
  std::vector<std::string> names = known_names(map, devices);
  for (const Binding& binding : bindings) {
    if (Status s = check_interface(option, binding, names); !s) return s;
    if (Status s = check_online(option, binding, cpus.online); !s) return s;
    const Nic* nic = map.nic(binding.interface);
    std::string far = nic == nullptr ? "" : far_cpus(option, binding, *nic, cpus);
    if (!far.empty()) warnings->push_back(std::move(far));
  }
  return {};
}

CpuSet worker_cpus(const Bindings& tx, const Bindings& rx, std::string_view interface) {
  CpuSet cpus;
  for (const Bindings* bindings : {&tx, &rx})
    for (const Binding& binding : *bindings)
      if (binding.interface == interface) cpus |= binding.cpus;
  return cpus;
}

}  // namespace tcpx::topo
