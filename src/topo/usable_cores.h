// How many cores this process may use: in a container far fewer than the machine has.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tcpx::topo {

// The least of what the process may run on and what the control groups it is in may use; 1 or more.
uint32_t usable_cores();

// Of a quota per period, both in microseconds: "200000 100000" (cpu.max) is 2 cores, a part of one
// counts as one. 0: no limit ("max 100000"), or nothing that can be understood.
uint32_t cores_of_quota(std::string_view cpu_max);
// The least limit of the control group of a process and of those it lies in. `membership`: as in
// /proc/self/cgroup. `root`: where control groups are mounted. 0: none.
uint32_t cores_of_groups(std::string_view membership, const std::string& root);

}  // namespace tcpx::topo
