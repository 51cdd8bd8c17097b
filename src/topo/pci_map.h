// The GPUs and NICs of this machine and where they sit on PCI.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "topo/pci_place.h"
#include "topo/sysfs.h"

namespace tcpx::topo {

inline constexpr int kNoNode = -1;  // the kernel does not say, or there is only one

struct Gpu {
  int index = 0;  // by PCI address, as CUDA_DEVICE_ORDER=PCI_BUS_ID counts
  PciPlace place;
  int numa_node = kNoNode;
};

struct Nic {
  std::string name;
  std::optional<PciPlace> place;  // none: virtual, or on another bus
  int numa_node = kNoNode;
  bool virtual_function = false;
};

struct PciMap {
  std::vector<Gpu> gpus;  // by index
  std::vector<Nic> nics;  // by name, also those that are not on PCI

  const Nic* nic(std::string_view name) const;
  const Gpu* gpu(std::string_view index_or_address) const;  // "0" or "0000:04:00.0"
};

// Fails only if there is no such folder; a machine without PCI has an empty map.
Status read_pci_map(const Sysfs& sysfs, PciMap* out);

// A NIC as a net plugin's properties describe it; `pci_path` may be empty.
Nic nic_of_plugin(std::string name, std::string_view pci_path);

}  // namespace tcpx::topo
