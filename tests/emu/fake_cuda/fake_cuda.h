// A CUDA driver without a GPU. Device memory cannot be touched by the CPU at its device address;
// copies and kernels are done later, by one thread per device, in the order of their stream;
// kernels are functions of the CPU. Loaded in the place of libcuda.so.1 (it has that name inside).
// What a test may ask and tell it beside the driver's own functions is in the table `fakeCuda`, and
// what calls it had in `cudaCounts` (cuda_counts.h).
//
// Environment, read at the first call: FAKE_CUDA_DEVICES (default 2), FAKE_CUDA_PLAN (see `plan`).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct FakeCuda {
  // Device memory of the current context's device: its device address, and where the CPU may see
  // it.
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
  void (*set_device_attribute)(int device, int attribute, int value);

  // ---- kernels ----
  // The function that a kernel of this name is; the sizes of its parameters, which are copied when
  // it is launched. It runs on the stream's thread and sees memory through `view` and `copy`.
  void (*register_kernel)(const char* name,
                          void (*function)(void** params, unsigned grid_x, unsigned block_x),
                          const size_t* param_sizes, unsigned params);
  // For kernels: memory as the device sees it. What the device may not touch breaks the context
  // (CUDA_ERROR_ILLEGAL_ADDRESS): null, false.
  uint8_t* (*view)(uint64_t device_address, size_t size);
  bool (*copy)(uint64_t to, uint64_t from, size_t size);

  // ---- the error plan ----
  // Adds to it; false, with a line on stderr: not understood. Entries, separated by ';' (N counts
  // from 1 and from now; "N+": that one and all later ones; "*": all):
  //   fail:FUNCTION@N=CODE   that call fails, and does nothing
  //   lose:FUNCTION@N=CODE   at that call its context is lost: every call in it has this code
  //   lock:FUNCTION@N=MS     at that call another thread has the driver's lock, for so long
  //   hang:N                 that asynchronous copy does not end until release()
  //   copy_us:US  kernel_us:US  write_us:US     what an operation takes, each (0: as ever)
  //   hold_kernels:MS        no kernel starts for so long; 0: until release()
  //   neighbours_are_one:1   a range of mapped memory is told with what is mapped beside it
  //   ranges_are_reservations:0   attributes tell that range, too; else the reservation around an
  //                          address, mapped there or not
  //   any_context:1          a call without a current context takes the first device's primary one
  //   one_by_one:1           operations of all streams are ordered for ThreadSanitizer; stays
  //   device_memory:BYTES  host_memory:BYTES    no more than that can be allocated (pinned)
  bool (*plan)(const char* entries);
  void (*clear_plan)();  // hung copies and held kernels stay so
  void (*release)();     // they go on, and those that are planned do not hang
  // Another thread takes the driver's lock, now, and has it for so long.
  void (*hold_driver_lock)(unsigned milliseconds);
  // The device's primary context is lost.
  void (*lose_context)(int device, int code);

  // That needed a context and had none, whatever came of it, since the counters were reset.
  uint64_t (*calls_without_context)();
  // Operations that were handed over and are neither done nor dropped; -1: of all devices.
  uint64_t (*pending)(int device);
  // Bytes that are allocated; host: pinned ones.
  uint64_t (*device_bytes)(int device);
  uint64_t (*host_bytes)();
};
extern const FakeCuda fakeCuda __attribute__((visibility("default")));
}
