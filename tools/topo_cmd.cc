// `tcpx topo`: which GPU may use which NIC, and on which CPUs their threads run.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include "print.h"

#include "commands.h"
#include "engine_options.h"
#include "failure.h"
#include "topo/binding_check.h"
#include "topo/pairing.h"
#include "topo_report.h"

namespace tcpx::tool {
namespace {

struct TopoOptions {
  std::string sysfs = "/sys";
  bool json = false;
  std::string gpu;
  std::vector<std::string> nics;
  EngineOptions engine;
};

void must(const Status& status) {
  if (!status) throw Failure(kExitUsage, status.text());
}

// Text that the option table has accepted, against this machine.
Bindings read_bindings(const TopoOptions& options, const char* name, Topology* topology) {
  Bindings out;
  must(parse_bindings(find_option(options.engine.resolve(), name).value, &out));
  must(topo::check_bindings(name, out, topology->map, topology->cpus, {}, &topology->warnings));
  return out;
}

Topology read_topology(const TopoOptions& options) {
  Topology out;
  topo::Sysfs sysfs(options.sysfs);
  out.sysfs = options.sysfs;
  must(topo::read_pci_map(sysfs, &out.map));
  out.cpus = topo::read_cpus(sysfs);
  out.tx = read_bindings(options, "net_tx_bindings", &out);
  out.rx = read_bindings(options, "net_rx_bindings", &out);
  return out;
}

const topo::Gpu& find_gpu(const Topology& topology, const std::string& wanted) {
  if (const topo::Gpu* gpu = topology.map.gpu(wanted)) return *gpu;
  throw Failure(kExitUsage, strf("no GPU {}: there are {}, by index (0...) or PCI address; tcpx "
                                 "topo lists them",
                                 wanted, topology.map.gpus.size()));
}

void check_names(const Topology& topology, const std::vector<std::string>& nics) {
  for (auto& name : nics)
    if (topology.map.nic(name) == nullptr)
      throw Failure(kExitUsage, strf("no NIC {}; tcpx topo lists those there are", name));
}

// "may this GPU use these NICs?": the answer, and the exit code for scripts.
int answer(const TopoOptions& options, const Topology& topology) {
  const topo::Gpu& gpu = find_gpu(topology, options.gpu);
  check_names(topology, options.nics);
  Status status = topo::check_nics_of_gpu(topology.map, gpu, options.nics);
  std::string reason = status.text();
  if (status)
    reason = topo::judge_pair(topology.map, gpu, *topology.map.nic(options.nics[0])).reason;
  print(stdout, "{}: {}\n", status ? "yes" : "no", reason);
  return status ? kExitOk : kExitEnvironment;
}

}  // namespace

Command add_topo(CLI::App& app) {
  auto* topo =
      app.add_subcommand("topo", "print GPUs, NICs, their PCIe roots and who may use whom");
  auto options = std::make_shared<TopoOptions>();
  auto* json = topo->add_flag("--json", options->json, "one JSON document");
  topo->add_option("--sysfs", options->sysfs, "a copy of /sys from another machine (cp -a)")
      ->type_name("DIR");
  auto* gpu = topo->add_option("--gpu", options->gpu,
                               "with --nic: only whether this GPU may use it; exit code 0 or 3")
                  ->type_name("INDEX|ADDRESS");
  auto* nic = topo->add_option("--nic", options->nics, "a NIC; several are refused with the reason")
                  ->type_name("NAME")
                  ->delimiter(',');
  gpu->needs(nic)->excludes(json);
  nic->needs(gpu);
  options->engine.add_to(*topo);
  return {topo, [options]() -> int {
            Topology topology = read_topology(*options);
            if (!options->gpu.empty()) return answer(*options, topology);
            print(stdout, "{}", options->json ? topology_json(topology) : topology_table(topology));
            return kExitOk;
          }};
}

}  // namespace tcpx::tool
