// CPU bindings against the machine they are meant for, and what they mean for our threads. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/bindings.h"
#include "topo/cpus.h"
#include "topo/pci_map.h"

namespace tcpx::topo {

// `option`: what the bindings are called, for the texts. `devices`: names a plugin knows beside the
// interfaces of the map. An unknown interface or a CPU that is not online is TCPX_BAD_CONFIG; CPUs
// far from the NIC only cost speed and are warned of.
Status check_bindings(std::string_view option, const Bindings& bindings, const PciMap& map,
                      const MachineCpus& cpus, std::span<const std::string> devices,
                      std::vector<std::string>* warnings);

// The CPUs of a thread that both sends and receives for `interface`; none: it is not bound.
CpuSet worker_cpus(const Bindings& tx, const Bindings& rx, std::string_view interface);

}  // namespace tcpx::topo
