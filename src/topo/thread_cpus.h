// On which CPUs a thread may run.
#pragma once

#include <sys/types.h>

#include "config/cpu_list.h"

namespace tcpx::topo {

// Those of `cpus` that the process may use; a failure if that is none.
Status bind_this_thread(const CpuSet& cpus);
// Whether a thread could be bound so, and to which CPUs it then was; leaves this thread alone.
Status try_binding(const CpuSet& cpus, CpuSet* effective);
// As the kernel has it now; none if there is no such thread. 0 is this thread.
CpuSet cpus_of_thread(pid_t thread);

}  // namespace tcpx::topo
