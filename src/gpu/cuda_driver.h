// The CUDA driver's functions that are used, declared by ourselves: facts of its ABI. Found at run
// time; nothing links to it, and a process that does not use CUDA never gets a driver from us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tcpx::gpu {

namespace cu {

using Result = int;
inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3,
                        kNotReady = 600;
using Device = int;
using Pointer = unsigned long long;
static_assert(sizeof(Pointer) == sizeof(void*));
using Context = struct ContextHandle*;
using Stream = struct StreamHandle*;
using Module = struct ModuleHandle*;
using Function = struct FunctionHandle*;

enum PointerAttribute : int {
  kMemoryType = 2,
  kSyncMemops = 6,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kLegacyIpcCapable = 10,
  kRangeStart = 11,
  kRangeSize = 12,
  kMapped = 13,
};
enum MemoryType : unsigned { kTypeUnknown = 0, kTypeHost = 1, kTypeDevice = 2 };
enum DeviceAttribute : int {
  kComputeMajor = 75,
  kComputeMinor = 76,
  kConcurrentManagedAccess = 89,
  kCanUseStreamMemOps = 92,
};
inline constexpr unsigned kHostAllocPortable = 1, kHostAllocMapped = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kContextSyncMemops = 0x80;
inline constexpr int kCaptureRelaxed = 2;

}  // namespace cu

struct CudaDriver {
  // What only looks: all that a process needs whose GPU memory is refused.
  cu::Result (*pointer_get_attributes)(unsigned count, cu::PointerAttribute* attributes,
                                       void** values, cu::Pointer pointer);
  cu::Result (*device_get_attribute)(int* value, int attribute, cu::Device device);
  cu::Result (*get_error_string)(cu::Result result, const char** text);

  // What moves. Null all together where one is missing: the driver is too old.
  cu::Result (*driver_get_version)(int* version);
  cu::Result (*device_get)(cu::Device* device, int ordinal);
  cu::Result (*device_get_name)(char* name, int length, cu::Device device);
  cu::Result (*device_get_pci_bus_id)(char* id, int length, cu::Device device);
  cu::Result (*primary_ctx_retain)(cu::Context* context, cu::Device device);
  cu::Result (*primary_ctx_release)(cu::Device device);
  cu::Result (*ctx_push_current)(cu::Context context);
  cu::Result (*ctx_pop_current)(cu::Context* context);
  cu::Result (*pointer_set_attribute)(const void* value, int attribute, cu::Pointer pointer);
  cu::Result (*mem_host_alloc)(void** memory, size_t bytes, unsigned flags);
  cu::Result (*mem_free_host)(void* memory);
  cu::Result (*stream_create_with_priority)(cu::Stream* stream, unsigned flags, int priority);
  cu::Result (*stream_destroy)(cu::Stream stream);
  cu::Result (*stream_query)(cu::Stream stream);
  cu::Result (*stream_write_value32)(cu::Stream stream, cu::Pointer address, uint32_t value,
                                     unsigned flags);
  cu::Result (*memcpy_htod_async)(cu::Pointer to, const void* from, size_t bytes,
                                  cu::Stream stream);
  cu::Result (*memcpy_dtoh_async)(void* to, cu::Pointer from, size_t bytes, cu::Stream stream);
  cu::Result (*module_load_data)(cu::Module* module, const void* image);
  cu::Result (*module_unload)(cu::Module module);
  cu::Result (*module_get_function)(cu::Function* function, cu::Module module, const char* name);
  cu::Result (*launch_kernel)(cu::Function function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, cu::Stream stream, void** parameters,
                              void** extra);

  // Null where a driver has none: what they are for is done without.
  cu::Result (*ctx_get_flags)(unsigned* flags);
  cu::Result (*ctx_set_flags)(unsigned flags);
  cu::Result (*exchange_capture_mode)(int* mode);

  bool can_move = false;
  std::string missing;  // the function for want of which it cannot

  std::string text_of(cu::Result result) const;
};

// The driver that this process has loaded; null: it has none, so no memory of its is a GPU's.
const CudaDriver* loaded_cuda_driver();

}  // namespace tcpx::gpu
