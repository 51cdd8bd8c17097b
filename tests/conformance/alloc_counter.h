// Counts every operator new in this binary (alloc_counter.cc replaces it), the library's included.
#pragma once

#include <cstdint>

namespace tcpx::test {
uint64_t allocations();
}
