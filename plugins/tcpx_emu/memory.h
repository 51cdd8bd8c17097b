// Registered memory.
#pragma once

#include "abi.h"
#include "world.h"

namespace tcpx_emu {

struct Region {
  uint8_t* data;
  uint64_t size;
  int type;  // kPtrHost or kPtrCuda

  bool contains(const void* at, uint64_t length) const {
    auto begin = reinterpret_cast<uintptr_t>(data), from = reinterpret_cast<uintptr_t>(at);
    return from >= begin && from - begin <= size && length <= size - (from - begin);
  }
};

Result register_memory(const World& world, int device, void* data, int size, int type,
                       Region** out);

}  // namespace tcpx_emu
