// What a driver tells tests of the calls that were made to it: the fake one, and the one that
// counts calls on their way to a real one (../counting_cuda). The table is exported as
// `cudaCounts`.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

extern "C" {

// What may not happen in a data path; counted since the last reset_counters().
struct CudaUse {
  uint64_t calls;          // of any function
  uint64_t allocations;    // memory of any kind: allocated, freed, registered, mapped
  uint64_t creations;      // streams, events, modules and contexts made or destroyed
  uint64_t synchronizing;  // calls that wait for the GPU, copies of pageable memory among them
  uint64_t legacy_stream;  // calls that were given stream 0, 1 or 2
  uint64_t host_functions;
};

struct CudaCounts {
  // The rest of the calling thread's calls are the test's own: not counted (and the fake has no
  // plan for them). Returns what it was before.
  bool (*set_aside)(bool aside);
  void (*reset_counters)();
  // By name as exported ("cuMemAlloc_v2"); thread 0: of all.
  uint64_t (*calls)(const char* function, pid_t thread);
  uint64_t (*calls_by_other_threads_than)(pid_t thread);
  uint64_t (*legacy_stream_calls)();
  void (*use)(pid_t thread, CudaUse* out);
  // Threads that have called; returns how many there are.
  size_t (*threads)(pid_t* out, size_t room);
  // The functions that a thread has called and how often, one per line.
  void (*describe)(pid_t thread, char* out, size_t room);
  // How often a context was made on a device (retained or created), since it was loaded.
  int (*contexts_made)(int device);
};
// The fake's, and the counting driver's: names of their own, because both may be loaded.
extern const CudaCounts cudaCounts __attribute__((visibility("default")));
extern const CudaCounts countedCuda __attribute__((visibility("default")));
}
