// What `tcpx topo` shows, as a table and as JSON.
#pragma once

#include <string>
#include <vector>

#include "config/bindings.h"
#include "topo/cpus.h"
#include "topo/pci_map.h"

namespace tcpx::tool {

struct Topology {
  std::string sysfs;
  topo::PciMap map;
  topo::MachineCpus cpus;
  Bindings tx, rx;
  std::vector<std::string> warnings;
};

std::string topology_table(const Topology& topology);
std::string topology_json(const Topology& topology);

}  // namespace tcpx::tool
