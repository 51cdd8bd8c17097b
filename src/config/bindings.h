// CPU bindings of interfaces, as NCCL_GPUDIRECTTCPX_TX_BINDINGS and _RX_BINDINGS write them:
// "eth1:8-21,112-125;eth2:22-35". Text only; topo/binding_check.h knows the machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/cpu_list.h"

namespace tcpx {

struct Binding {
  std::string interface;
  CpuSet cpus;  // never empty
};
using Bindings = std::vector<Binding>;

// "" is no binding. As strict as the plugin is careless: an entry that it would skip leaves it with
// no core, and it divides by that number. So one CPU is written 8-8. A failure names the piece, its
// position (characters, from 1) and what to write instead.
Status parse_bindings(std::string_view text, Bindings* out);

}  // namespace tcpx
