// Memory: allocated, pinned, and what the driver knows of an address.
#include "call.h"
#include "device_memory.h"

using namespace fake_cuda;

namespace {

int allocate(Call& call, Kind kind, size_t size, uint64_t* out) {
  if (size == 0) return kInvalidValue;
  if (size > kDeviceBytes) return kOutOfMemory;
  *out = allocate_range(kind, size, call.context->device->ordinal, call.context);
  return *out != 0 ? kSuccess : kOutOfMemory;
}

// Gone when nothing that was handed over can touch it any more.
int free_range(Call& call, uint64_t address, bool host) {
  Range range;
  if (!find_range(address, &range) || range.start != address || range.on_host() != host)
    return kInvalidValue;
  if (range.context != nullptr && range.context->code() == 0)
    if (int lost = call.wait_for_all(range.context)) return lost;
  if (!remove_range(address, host, &range)) return kInvalidValue;
  unmap_range(range);
  return kSuccess;
}

template <class T>
int put(void* out, T value) {
  *static_cast<T*>(out) = value;
  return kSuccess;
}

unsigned type_of(const Range* range) {
  if (range == nullptr) return kTypeUnknown;
  return range->on_host() ? kTypeHost : kTypeDevice;
}

// One attribute; `range` is null for memory that the driver does not know.
int attribute_of(int attribute, uint64_t address, const Range* range, bool mapped, void* out) {
  const bool known = range != nullptr;
  const bool on_host = known && (range->on_host() || range->kind == Kind::kManaged);
  void* at = reinterpret_cast<void*>(address);
  switch (attribute) {
    case kAttributeContext: return put<void*>(out, known ? range->context : nullptr);
    case kAttributeMemoryType: return put(out, type_of(range));
    case kAttributeDevicePointer: return put(out, known ? at : nullptr);
    case kAttributeHostPointer: return put(out, on_host ? at : nullptr);
    case kAttributeSyncMemops: return put<unsigned>(out, known && range->sync_memops);
    case kAttributeBufferId: return put<uint64_t>(out, known ? range->id : 0);
    case kAttributeIsManaged: return put<unsigned>(out, known && range->kind == Kind::kManaged);
    case kAttributeDeviceOrdinal: return put(out, known ? range->device : kNoOrdinal);
    case kAttributeIsLegacyIpcCapable:
      return put<unsigned>(out,
                           known && (range->kind == Kind::kDevice || range->kind == Kind::kName));
    case kAttributeRangeStart: return put<uint64_t>(out, known ? range->start : 0);
    case kAttributeRangeSize: return put<size_t>(out, known ? range->size : 0);
    case kAttributeMapped: return put<unsigned>(out, mapped);
    case kAttributeAllowedHandleTypes: return put<uint64_t>(out, 0);
    case kAttributeRdmaCapable: return put<unsigned>(out, 0);
    case kAttributeAccessFlags:
      return put<unsigned>(out, known && range->device_may_touch ? (range->may_write ? 3 : 1) : 0);
    case kAttributeMempool:
      return put<void*>(out, known && range->kind == Kind::kPool ? at : nullptr);
    default: return kInvalidValue;
  }
}

}  // namespace

FAKE_CUDA_API cuMemAlloc_v2(uint64_t* address, size_t size) {
  FAKE_CUDA_CALL(kContext);
  return allocate(call, Kind::kDevice, size, address);
}
FAKE_CUDA_API cuMemAllocManaged(uint64_t* address, size_t size, unsigned flags) {
  FAKE_CUDA_CALL(kContext);
  if (flags != 1 && flags != 2) return kInvalidValue;
  return allocate(call, Kind::kManaged, size, address);
}
FAKE_CUDA_API cuMemAllocAsync(uint64_t* address, size_t size, void* stream) {
  FAKE_CUDA_CALL(kContext);
  if (stream_of(call, stream) == nullptr) return kInvalidHandle;
  return allocate(call, Kind::kPool, size, address);
}
FAKE_CUDA_API cuMemFree_v2(uint64_t address) {
  FAKE_CUDA_CALL(kContext);
  return address == 0 ? static_cast<int>(kSuccess) : free_range(call, address, false);
}
FAKE_CUDA_API cuMemFreeAsync(uint64_t address, void* handle) {
  FAKE_CUDA_CALL(kContext);
  Stream* stream = stream_of(call, handle);
  Range range;
  if (stream == nullptr) return kInvalidHandle;
  if (!find_range(address, &range) || range.start != address || range.on_host())
    return kInvalidValue;
  auto op = std::make_unique<Op>();
  op->work = [address] {
    Range gone;
    if (remove_range(address, false, &gone)) unmap_range(gone);
  };
  stream->submit(std::move(op));
  return kSuccess;
}
FAKE_CUDA_API cuMemGetInfo_v2(size_t* free, size_t* total) {
  FAKE_CUDA_CALL(kContext);
  *total = kDeviceBytes;
  *free = kDeviceBytes - device_bytes(call.context->device->ordinal);
  return kSuccess;
}
FAKE_CUDA_API cuMemHostAlloc(void** memory, size_t size, unsigned flags) {
  FAKE_CUDA_CALL(kContext);
  if (flags > 7) return kInvalidValue;
  uint64_t address = 0;
  const int code = allocate(call, Kind::kPinned, size, &address);
  if (code == kSuccess) *memory = reinterpret_cast<void*>(address);
  return code;
}
FAKE_CUDA_API cuMemFreeHost(void* memory) {
  FAKE_CUDA_CALL(kContext);
  Range range;
  const auto address = reinterpret_cast<uint64_t>(memory);
  if (find_range(address, &range) && range.kind != Kind::kPinned) return kInvalidValue;
  return free_range(call, address, true);
}
FAKE_CUDA_API cuMemHostRegister_v2(void* memory, size_t size, unsigned) {
  FAKE_CUDA_CALL(kContext);
  if (memory == nullptr || size == 0) return kInvalidValue;
  if (!has_room(false, host_bytes() + size)) return kOutOfMemory;
  return add_range({.start = reinterpret_cast<uint64_t>(memory),
                    .size = size,
                    .kind = Kind::kRegistered,
                    .device = call.context->device->ordinal,
                    .context = call.context,
                    .view = static_cast<uint8_t*>(memory)})
             ? kSuccess
             : kHostMemoryAlreadyRegistered;
}
FAKE_CUDA_API cuMemHostUnregister(void* memory) {
  FAKE_CUDA_CALL(kContext);
  Range range;
  const auto address = reinterpret_cast<uint64_t>(memory);
  if (!find_range(address, &range) || range.kind != Kind::kRegistered || range.start != address)
    return kHostMemoryNotRegistered;
  return free_range(call, address, true);
}
// One address space for both.
FAKE_CUDA_API cuMemHostGetDevicePointer_v2(uint64_t* device, void* memory, unsigned flags) {
  FAKE_CUDA_CALL(kContext);
  Range range;
  const auto address = reinterpret_cast<uint64_t>(memory);
  if (flags != 0 || !find_range(address, &range) || !range.on_host()) return kInvalidValue;
  return *device = address, kSuccess;
}
FAKE_CUDA_API cuMemGetAddressRange_v2(uint64_t* start, size_t* size, uint64_t address) {
  FAKE_CUDA_CALL(kContext);
  Range range;
  if (!told_range(address, &range)) return kNotFound;
  if (start != nullptr) *start = range.start;
  if (size != nullptr) *size = range.size;
  return kSuccess;
}
FAKE_CUDA_API cuPointerGetAttribute(void* out, int attribute, uint64_t address) {
  FAKE_CUDA_CALL(kInit);
  Range range;
  bool mapped = false;
  if (out == nullptr || !attribute_range(address, &range, &mapped)) return kInvalidValue;
  return attribute_of(attribute, address, &range, mapped, out);
}
FAKE_CUDA_API cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                     uint64_t address) {
  FAKE_CUDA_CALL(kInit);
  Range range;
  bool mapped = false;
  const bool known = attribute_range(address, &range, &mapped);
  for (unsigned i = 0; i < count; ++i)
    if (int code =
            attribute_of(attributes[i], address, known ? &range : nullptr, mapped, values[i]))
      return code;
  return kSuccess;
}
FAKE_CUDA_API cuPointerSetAttribute(const void* value, int attribute, uint64_t address) {
  FAKE_CUDA_CALL(kInit);
  Range range;
  if (attribute != kAttributeSyncMemops || !find_range(address, &range)) return kInvalidValue;
  if (range.kind == Kind::kMapped) return kNotSupported;  // its context has a flag for it
  set_sync_memops(address, *static_cast<const unsigned*>(value) != 0);
  return kSuccess;
}
