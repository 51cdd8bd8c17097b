// The counters of tcpx_emu.h. They live in static memory or, with TCPX_EMU_COUNTERS, in a mapped
// file; always ask counters() for them, since init() may move them.
#pragma once

#include <atomic>
#include <string>

#include "tcpx_emu.h"

namespace tcpx_emu {

tcpx_emu_counters& counters(int device);

// Creates `path` ("%p" in it stands for the process id) and moves the counters there. "" or why
// not.
std::string map_counters(const std::string& path, int devices);

inline std::atomic_ref<uint64_t> counter(uint64_t& field) {
  return std::atomic_ref<uint64_t>(field);
}

inline void add(uint64_t& field, uint64_t n = 1) {
  counter(field).fetch_add(n, std::memory_order_relaxed);
}
inline void subtract(uint64_t& field, uint64_t n = 1) {
  counter(field).fetch_sub(n, std::memory_order_relaxed);
}
inline void raise_to(uint64_t& field, uint64_t value) {
  uint64_t seen = counter(field).load(std::memory_order_relaxed);
  while (seen < value && !counter(field).compare_exchange_weak(seen, value)) {
  }
}

}  // namespace tcpx_emu
