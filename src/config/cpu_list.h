// Sets of CPUs as text, the way the kernel writes them: "0-51,104-155".
#pragma once

#include <bitset>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tcpx {

inline constexpr size_t kMaxCpus = 1024;  // what a cpu_set_t holds
using CpuSet = std::bitset<kMaxCpus>;

// "0-3,8" or "" (none). A failure names the piece.
Status parse_cpu_list(std::string_view text, CpuSet* out);
std::string format_cpus(const CpuSet& cpus);

// Sets first..last; the parsers of CPU lists and of bindings share it.
void add_cpus(size_t first, size_t last, CpuSet* cpus);

}  // namespace tcpx
