// The CPUs of this machine: which are online, and which are near a NUMA node.
#pragma once

#include <map>

#include "config/cpu_list.h"
#include "topo/sysfs.h"

namespace tcpx::topo {

struct MachineCpus {
  CpuSet online;               // none: sysfs does not say
  std::map<int, CpuSet> node;  // by NUMA node
};
MachineCpus read_cpus(const Sysfs& sysfs);

}  // namespace tcpx::topo
