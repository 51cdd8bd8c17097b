// Facts of the CUDA driver's ABI that the fake needs, declared by ourselves.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fake_cuda {

using Pointer = unsigned long long;

enum Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kAlreadyMapped = 208,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kContextIsDestroyed = 709,
  kHostMemoryAlreadyRegistered = 712,
  kHostMemoryNotRegistered = 713,
  kMisalignedAddress = 716,
  kLaunchFailed = 719,
  kNotSupported = 801,
};

enum PointerAttribute : int {
  kAttributeContext = 1,
  kAttributeMemoryType = 2,
  kAttributeDevicePointer = 3,
  kAttributeHostPointer = 4,
  kAttributeSyncMemops = 6,
  kAttributeBufferId = 7,
  kAttributeIsManaged = 8,
  kAttributeDeviceOrdinal = 9,
  kAttributeIsLegacyIpcCapable = 10,
  kAttributeRangeStart = 11,
  kAttributeRangeSize = 12,
  kAttributeMapped = 13,
  kAttributeAllowedHandleTypes = 14,
  kAttributeRdmaCapable = 15,
  kAttributeAccessFlags = 16,
  kAttributeMempool = 17,
};
enum MemoryType : unsigned { kTypeUnknown = 0, kTypeHost = 1, kTypeDevice = 2 };
inline constexpr int kNoOrdinal = -2;

inline constexpr unsigned kCtxSyncMemops = 0x80;  // a context's flag
inline constexpr unsigned kStreamNonBlocking = 1;
enum WaitValue : unsigned { kWaitGeq = 0, kWaitEq = 1, kWaitAnd = 2, kWaitNor = 3 };

struct Location {
  int type;  // 1: a device
  int id;
};
struct AllocationProp {
  int type;  // 1: pinned
  int handle_types;
  Location location;
  void* win32_handle_meta_data;
  struct {
    unsigned char compression_type, rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};
static_assert(sizeof(AllocationProp) == 32);
struct AccessDesc {
  Location location;
  int flags;  // 0: none, 1: read, 3: read and write
};
static_assert(sizeof(AccessDesc) == 12);

}  // namespace fake_cuda

// All of the driver's functions, and nothing else, are seen from outside.
#define FAKE_CUDA_API extern "C" __attribute__((visibility("default"))) int
