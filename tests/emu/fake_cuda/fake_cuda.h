// A CUDA driver without a GPU: device memory that the CPU cannot
// touch at its device address, and copies that take a few looks to finish. Loaded in the place of
// libcuda.so.1 (it has that name inside).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct FakeCuda {
  // Device memory: its device address, and where the CPU may see it.
  uint64_t (*allocate)(size_t size);
  uint8_t* (*host_view)(uint64_t device_address);
  // What the emulator did.
  int (*copies)();
  int (*streams_open)();
  int (*events_open)();
  int (*host_allocations)();
  // The device of the calling thread's context; -1: none.
  void (*set_current)(int device);
  // What the driver says of addresses that are only names: a range of a device's memory.
  void (*add_range)(uint64_t start, size_t size, int device, bool managed);
  void (*allow_concurrent_managed_access)(bool allow);
};
extern const FakeCuda fakeCuda __attribute__((visibility("default")));
}
