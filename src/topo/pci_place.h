// Where a device sits on PCI: below which root, behind which bridges. Read from its path in sysfs;
// pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tcpx::topo {

struct PciPlace {
  std::string root;                  // "pci0000:01": the host bridge everything here is below
  std::vector<std::string> bridges;  // from the root port down, e.g. the ports of a switch
  std::string address;               // "0000:06:00.0"
};

// Of a path without links, e.g. /sys/devices/pci0000:01/0000:01:00.0/0000:06:00.0, also when it
// goes on to what the device offers (.../virtio2/net/eth0). Nothing: not on PCI.
std::optional<PciPlace> place_of(std::string_view sysfs_path);

bool is_pci_address(std::string_view text);  // "0000:06:00.0"

// Bridges both are behind; the last of them is where their ways part.
size_t common_bridges(const PciPlace& a, const PciPlace& b);

}  // namespace tcpx::topo
