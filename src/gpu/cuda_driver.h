// The CUDA driver's functions that are used, declared by ourselves: facts of its ABI. Found at run
// time; nothing links to it, and a process that does not use CUDA never gets a driver from us.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tcpx::gpu {

namespace cu {

using Result = int;
inline constexpr Result kSuccess = 0, kNotInitialized = 3;
using Device = int;
using Pointer = unsigned long long;
static_assert(sizeof(Pointer) == sizeof(void*));

enum PointerAttribute : int {
  kMemoryType = 2,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kRangeStart = 11,
  kRangeSize = 12,
};
enum MemoryType : unsigned { kTypeUnknown = 0, kTypeHost = 1, kTypeDevice = 2 };
inline constexpr int kConcurrentManagedAccess = 89;  // of a device

}  // namespace cu

struct CudaDriver {
  cu::Result (*pointer_get_attributes)(unsigned count, cu::PointerAttribute* attributes,
                                       void** values, cu::Pointer pointer);
  cu::Result (*device_get_attribute)(int* value, int attribute, cu::Device device);
  cu::Result (*get_error_string)(cu::Result result, const char** text);

  std::string text_of(cu::Result result) const;
};

// The driver that this process has loaded; null: it has none, so no memory of its is a GPU's.
const CudaDriver* loaded_cuda_driver();

}  // namespace tcpx::gpu
