// What the emulator has counted and complained about in this process.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "../../plugins/tcpx_emu/tcpx_emu.h"

namespace tcpx::test {

// Whether the library in `file`, which is loaded, is the emulator.
inline bool is_emulator(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr && ::dlsym(library, "tcpxEmu_v1") != nullptr;
}

inline const tcpx_emu_v1& emulator(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  return *static_cast<const tcpx_emu_v1*>(::dlsym(library, "tcpxEmu_v1"));
}

inline tcpx_emu_counters emulator_counters(const std::string& file, int nic = 0) {
  tcpx_emu_counters out{};
  EXPECT_EQ(emulator(file).counters(nic, &out), 0);
  return out;
}

}  // namespace tcpx::test
