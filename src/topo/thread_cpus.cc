#include "topo/thread_cpus.h"

#include <sched.h>

#include <cerrno>

#include "base/text.h"
#include "base/thread.h"

namespace tcpx::topo {

static_assert(kMaxCpus == CPU_SETSIZE);

Status bind_this_thread(const CpuSet& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (size_t cpu = 0; cpu < kMaxCpus; ++cpu)
    if (cpus[cpu]) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) == 0) return {};
  return Status::system(
      errno, TCPX_BLAST_NOTHING,
      strf("a thread cannot run on CPUs {} (this process may not use them?)", format_cpus(cpus)));
}

Status try_binding(const CpuSet& cpus, CpuSet* effective) {
  Status status;
  std::thread thread;
  Status started = start_thread(&thread, "a thread to try CPUs with", [&] {
    try {
      status = bind_this_thread(cpus);
      if (status) *effective = cpus_of_thread(0);
    } catch (...) {
      status = caught(TCPX_BLAST_NOTHING);
    }
  });
  if (!started) return started;
  thread.join();
  return status;
}

CpuSet cpus_of_thread(pid_t thread) {
  CpuSet cpus;
  cpu_set_t set;
  if (sched_getaffinity(thread, sizeof set, &set) != 0) return cpus;
  for (size_t cpu = 0; cpu < kMaxCpus; ++cpu) cpus[cpu] = CPU_ISSET(cpu, &set);
  return cpus;
}

}  // namespace tcpx::topo
