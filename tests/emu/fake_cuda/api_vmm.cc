// Virtual memory management: addresses and memory apart, as expandable segments are made of.
#include "call.h"
#include "device_memory.h"

using namespace fake_cuda;

FAKE_CUDA_API cuMemGetAllocationGranularity(size_t* granularity, const AllocationProp* prop, int) {
  FAKE_CUDA_CALL(kInit);
  if (prop == nullptr || device_at(prop->location.id) == nullptr) return kInvalidValue;
  return *granularity = kGranularity, kSuccess;
}
FAKE_CUDA_API cuMemAddressReserve(uint64_t* address, size_t size, size_t alignment, uint64_t,
                                  unsigned long long flags) {
  FAKE_CUDA_CALL(kInit);
  if (flags != 0) return kInvalidValue;
  *address = reserve(size, alignment);
  return *address != 0 ? kSuccess : kInvalidValue;
}
FAKE_CUDA_API cuMemAddressFree(uint64_t address, size_t size) {
  FAKE_CUDA_CALL(kInit);
  return free_reservation(address, size);
}
FAKE_CUDA_API cuMemCreate(Physical** handle, size_t size, const AllocationProp* prop,
                          unsigned long long flags) {
  FAKE_CUDA_CALL(kInit);
  constexpr int kPinnedType = 1, kOnDevice = 1;
  if (prop == nullptr || prop->type != kPinnedType || prop->location.type != kOnDevice ||
      flags != 0 || size == 0 || size % kGranularity != 0)
    return kInvalidValue;
  if (device_at(prop->location.id) == nullptr) return kInvalidDevice;
  *handle = make_physical(size, prop->location.id);
  return *handle != nullptr ? kSuccess : kOutOfMemory;
}
FAKE_CUDA_API cuMemRelease(Physical* handle) {
  FAKE_CUDA_CALL(kInit);
  return release_physical(handle);
}
FAKE_CUDA_API cuMemRetainAllocationHandle(Physical** handle, void* address) {
  FAKE_CUDA_CALL(kInit);
  *handle = retain_physical(reinterpret_cast<uint64_t>(address));
  return *handle != nullptr ? kSuccess : kInvalidValue;
}
FAKE_CUDA_API cuMemMap(uint64_t address, size_t size, size_t offset, Physical* handle,
                       unsigned long long flags) {
  FAKE_CUDA_CALL(kInit);
  return flags != 0 ? static_cast<int>(kInvalidValue) : map_physical(address, size, offset, handle);
}
FAKE_CUDA_API cuMemUnmap(uint64_t address, size_t size) {
  FAKE_CUDA_CALL(kInit);
  return unmap_physical(address, size);
}
FAKE_CUDA_API cuMemSetAccess(uint64_t address, size_t size, const AccessDesc* all, size_t count) {
  FAKE_CUDA_CALL(kInit);
  for (size_t i = 0; i < count; ++i) {
    if (device_at(all[i].location.id) == nullptr) return kInvalidDevice;
    if (int code = set_access(address, size, all[i].location.id, all[i].flags)) return code;
  }
  return kSuccess;
}
