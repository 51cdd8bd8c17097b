#include "config/cpu_list.h"

#include "base/log.h"
#include "base/units.h"
#include "config/fields.h"

namespace tcpx {

void add_cpus(size_t first, size_t last, CpuSet* cpus) {
  for (size_t cpu = first; cpu <= last; ++cpu) cpus->set(cpu);
}

Status parse_cpu_list(std::string_view text, CpuSet* out) {
  CpuSet cpus;
  if (!text.empty()) {
    for (std::string_view piece : config::split(text, ',')) {
      uint64_t first = 0, last = 0;
      size_t dash = piece.find('-');
      bool good = parse_count(piece.substr(0, dash), &first).ok();
      last = first;
      if (dash != std::string_view::npos) good &= parse_count(piece.substr(dash + 1), &last).ok();
      if (!good || first > last || last >= kMaxCpus) {
        return bad_call(TCPX_BAD_CONFIG,
                        strf("\"{}\" is no CPU and no range of CPUs within 0..{}, e.g. 0-3,8",
                             escaped(piece.substr(0, 40)), kMaxCpus - 1));
      }
      add_cpus(first, last, &cpus);
    }
  }
  *out = cpus;
  return {};
}

std::string format_cpus(const CpuSet& cpus) {
  std::string out;
  for (size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!cpus[cpu]) continue;
    size_t last = cpu;
    while (last + 1 < kMaxCpus && cpus[last + 1]) ++last;
    out += strf("{}{}", out.empty() ? "" : ",", cpu);
    if (last > cpu) out += strf("-{}", last);
    cpu = last;
  }
  return out;
}

}  // namespace tcpx
