#include "memory/fragments.h"

#include <algorithm>

namespace tcpx {

// Fragments come in order per socket and interleaved between sockets, so most follow a neighbour:
// joining runs as they come leaves few runs to sort. Total length plus "no two overlap" is the same
// as "exactly once".
bool covers_exactly(std::span<const Fragment> fragments, uint64_t bytes, uint64_t pool_bytes) {
  struct Run {
    uint64_t from, to;
  };
  Run runs[kMostFragments];
  size_t count = 0;
  uint64_t total = 0;
  if (fragments.size() > kMostFragments) return false;
  for (const Fragment& fragment : fragments) {
    if (fragment.length == 0 || fragment.length > bytes) return false;
    if (fragment.destination > bytes - fragment.length) return false;
    if (pool_bytes > 0 && uint64_t{fragment.source} + fragment.length > pool_bytes) return false;
    total += fragment.length;
    if (count > 0 && runs[count - 1].to == fragment.destination)
      runs[count - 1].to += fragment.length;
    else
      runs[count++] = {fragment.destination, fragment.destination + fragment.length};
  }
  if (total != bytes) return false;
  std::sort(runs, runs + count, [](const Run& a, const Run& b) { return a.from < b.from; });
  for (size_t i = 1; i < count; ++i)
    if (runs[i].from < runs[i - 1].to) return false;
  return true;
}

}  // namespace tcpx
