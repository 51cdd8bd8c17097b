// A tool as a profiler is one: NVTX loads it where NVTX_INJECTION64_PATH names it, and it keeps
// what it is told of ranges.
#pragma once

#include <cstddef>
#include <cstdint>

struct RecordedRange {
  char domain[16];
  char name[16];
  uint64_t bytes;
  // Counted together, from 1 on: which of all beginnings and ends this was; 0: not yet.
  uint64_t begun, ended;
};

// From the first one on; returns how many there are.
extern "C" __attribute__((visibility("default"))) size_t recorded_ranges(RecordedRange* out,
                                                                         size_t room);
