#include "topo/cpus.h"

#include <charconv>

namespace tcpx::topo {
namespace {

CpuSet read_list(const Sysfs& sysfs, const std::string& file) {
  CpuSet cpus;
  if (!parse_cpu_list(sysfs.line(file), &cpus)) cpus.reset();
  return cpus;
}

}  // namespace

MachineCpus read_cpus(const Sysfs& sysfs) {
  constexpr std::string_view kPrefix = "node";
  const std::string nodes = "devices/system/node";
  MachineCpus out;
  out.online = read_list(sysfs, "devices/system/cpu/online");
  for (const std::string& name : sysfs.names(nodes)) {
    int node = 0;
    const char* end = name.data() + name.size();
    if (!name.starts_with(kPrefix) ||
        std::from_chars(name.data() + kPrefix.size(), end, node).ptr != end)
      continue;
    out.node[node] = read_list(sysfs, nodes + "/" + name + "/cpulist");
  }
  return out;
}

}  // namespace tcpx::topo
