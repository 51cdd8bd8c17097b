#include "topo_report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "topo/binding_check.h"
#include "topo/pairing.h"

namespace tcpx::tool {
namespace {

using Json = nlohmann::ordered_json;
using Cells = std::vector<std::string>;

// Columns as wide as their widest cell; the last one is not padded.
std::string aligned(const std::vector<Cells>& rows) {
  std::vector<size_t> width;
  for (const Cells& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i)
      out += i + 1 == row.size() ? row[i] + "\n" : strf("{:<{}}  ", row[i], width[i]);
  }
  return out;
}

std::string or_dash(std::string text) {
  return text.empty() ? "-" : text;
}

std::string node_text(int node) {
  return node == topo::kNoNode ? "-" : std::to_string(node);
}

CpuSet near_cpus(const Topology& t, int node) {
  auto found = t.cpus.node.find(node);
  return found == t.cpus.node.end() ? CpuSet() : found->second;
}

// Those that use this NIC.
std::vector<std::string> gpus_of(const Topology& t, const topo::Nic& nic) {
  std::vector<std::string> out;
  for (const topo::Gpu& gpu : t.map.gpus)
    if (topo::nic_for(t.map, gpu) == &nic) out.push_back(std::to_string(gpu.index));
  return out;
}

std::string gpu_table(const Topology& t) {
  if (t.map.gpus.empty()) return "no NVIDIA GPU\n";
  std::vector<Cells> rows = {{"GPU", "address", "root", "NUMA", "NIC"}};
  for (const topo::Gpu& gpu : t.map.gpus) {
    const topo::Nic* nic = topo::nic_for(t.map, gpu);
    rows.push_back({std::to_string(gpu.index), gpu.place.address, gpu.place.root,
                    node_text(gpu.numa_node), nic == nullptr ? "none below its root" : nic->name});
  }
  return aligned(rows);
}

std::string nic_table(const Topology& t) {
  std::vector<Cells> rows = {
      {"NIC", "address", "root", "NUMA", "CPUs near", "TX CPUs", "RX CPUs", "GPUs"}};
  Cells elsewhere;
  for (const topo::Nic& nic : t.map.nics) {
    if (!nic.place) {
      elsewhere.push_back(escaped(nic.name));
      continue;
    }
    rows.push_back({escaped(nic.name), nic.place->address + (nic.virtual_function ? " (VF)" : ""),
                    nic.place->root, node_text(nic.numa_node),
                    or_dash(format_cpus(near_cpus(t, nic.numa_node))),
                    or_dash(format_cpus(topo::worker_cpus(t.tx, {}, nic.name))),
                    or_dash(format_cpus(topo::worker_cpus({}, t.rx, nic.name))),
                    or_dash(join(gpus_of(t, nic), ","))});
  }
  std::string out = rows.size() == 1 ? "no NIC on PCI\n" : aligned(rows);
  return elsewhere.empty() ? out : out + "not on PCI: " + join(elsewhere, ", ") + "\n";
}

std::string pair_table(const Topology& t) {
  std::vector<Cells> rows = {{"GPU", "NIC", "may", "why"}};
  for (const topo::Gpu& gpu : t.map.gpus) {
    for (const topo::Nic& nic : t.map.nics) {
      if (!nic.place) continue;
      topo::Verdict verdict = topo::judge_pair(t.map, gpu, nic);
      rows.push_back({std::to_string(gpu.index), escaped(nic.name), verdict.allowed ? "yes" : "no",
                      verdict.reason});
    }
  }
  return rows.size() == 1 ? "" : "\n" + aligned(rows);
}

Json place_json(const topo::PciPlace& place) {
  return {{"address", place.address}, {"root", place.root}, {"bridges", place.bridges}};
}

Json gpus_json(const Topology& t) {
  Json out = Json::array();
  for (const topo::Gpu& gpu : t.map.gpus) {
    const topo::Nic* nic = topo::nic_for(t.map, gpu);
    out.push_back({{"index", gpu.index},
                   {"pci", place_json(gpu.place)},
                   {"numa_node", gpu.numa_node},
                   {"nic", nic == nullptr ? Json() : Json(nic->name)}});
  }
  return out;
}

Json nics_json(const Topology& t) {
  Json out = Json::array();
  for (const topo::Nic& nic : t.map.nics)
    out.push_back({{"name", nic.name},
                   {"pci", nic.place ? place_json(*nic.place) : Json()},
                   {"numa_node", nic.numa_node},
                   {"virtual_function", nic.virtual_function},
                   {"near_cpus", format_cpus(near_cpus(t, nic.numa_node))},
                   {"tx_cpus", format_cpus(topo::worker_cpus(t.tx, {}, nic.name))},
                   {"rx_cpus", format_cpus(topo::worker_cpus({}, t.rx, nic.name))},
                   {"worker_cpus", format_cpus(topo::worker_cpus(t.tx, t.rx, nic.name))}});
  return out;
}

Json pairs_json(const Topology& t) {
  Json out = Json::array();
  for (const topo::Gpu& gpu : t.map.gpus) {
    for (const topo::Nic& nic : t.map.nics) {
      topo::Verdict verdict = topo::judge_pair(t.map, gpu, nic);
      out.push_back({{"gpu", gpu.index},
                     {"nic", nic.name},
                     {"allowed", verdict.allowed},
                     {"reason", verdict.reason}});
    }
  }
  return out;
}

}  // namespace

std::string topology_table(const Topology& t) {
  std::string out = gpu_table(t) + "\n" + nic_table(t) + pair_table(t);
  for (const std::string& warning : t.warnings) out += "warning: " + warning + "\n";
  return out;
}

std::string topology_json(const Topology& t) {
  Json out = {
      {"schema", 1},           {"sysfs", t.sysfs},     {"online_cpus", format_cpus(t.cpus.online)},
      {"gpus", gpus_json(t)},  {"nics", nics_json(t)}, {"pairs", pairs_json(t)},
      {"warnings", t.warnings}};
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tcpx::tool
