// Which NIC may carry the memory of which GPU. The NIC writes payload straight into pages of the
// GPU's pool, and the pool belongs to the queues of the NIC below the same PCIe root: a GPU with a
// NIC of another root dies with "rx no cmsg", also when both are on one NUMA node. Pure.
#pragma once

#include <span>
#include <string>

#include "topo/pci_map.h"

namespace tcpx::topo {

struct Verdict {
  bool allowed = false;
  std::string reason;  // of either answer
};
Verdict judge_pair(const PciMap& map, const Gpu& gpu, const Nic& nic);

// The NIC for the GPU: of those below its root the one with the most bridges in common, then by
// name. Null: there is none.
const Nic* nic_for(const PciMap& map, const Gpu& gpu);

// A refusal names both roots and the NIC to use. For the memory of `gpu` and what the user asked
// for, by name: several NICs for one GPU, or one that may not carry it, are TCPX_BAD_CONFIG.
Status check_pair(const PciMap& map, const Gpu& gpu, const Nic& nic);
Status check_nics_of_gpu(const PciMap& map, const Gpu& gpu, std::span<const std::string> nics);

}  // namespace tcpx::topo
