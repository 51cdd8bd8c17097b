// Start, devices, errors.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "call.h"

using namespace fake_cuda;

namespace {

struct Error {
  int code;
  const char *name, *text;
};
constexpr Error kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kAlreadyMapped, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Error* error_of(int code) {
  auto found = std::ranges::find(kErrors, code, &Error::code);
  return found != std::end(kErrors) ? found : nullptr;
}

void put_text(char* out, int room, const std::string& text) {
  if (room > 0) std::snprintf(out, static_cast<size_t>(room), "%s", text.c_str());
}

}  // namespace

FAKE_CUDA_API cuInit(unsigned flags) {
  FAKE_CUDA_CALL(kNothing);
  if (flags != 0) return kInvalidValue;
  initialize();
  if (!is_initialized()) return kNotInitialized;  // a child of one who had it
  return device_count() > 0 ? kSuccess : kNoDevice;
}
FAKE_CUDA_API cuDriverGetVersion(int* version) {
  FAKE_CUDA_CALL(kNothing);
  return *version = 13000, kSuccess;
}
FAKE_CUDA_API cuDeviceGetCount(int* count) {
  FAKE_CUDA_CALL(kInit);
  return *count = device_count(), kSuccess;
}
FAKE_CUDA_API cuDeviceGet(int* device, int ordinal) {
  FAKE_CUDA_CALL(kInit);
  if (device_at(ordinal) == nullptr) return kInvalidDevice;
  return *device = ordinal, kSuccess;
}
FAKE_CUDA_API cuDeviceGetName(char* name, int room, int device) {
  FAKE_CUDA_CALL(kInit);
  if (device_at(device) == nullptr) return kInvalidDevice;
  return put_text(name, room, name_of_device(device)), kSuccess;
}
FAKE_CUDA_API cuDeviceGetUuid_v2(char* uuid, int device) {
  FAKE_CUDA_CALL(kInit);
  if (device_at(device) == nullptr) return kInvalidDevice;
  std::memcpy(uuid, "fake CUDA device", 16);
  return uuid[15] = static_cast<char>(device), kSuccess;
}
FAKE_CUDA_API cuDeviceGetPCIBusId(char* id, int room, int device) {
  FAKE_CUDA_CALL(kInit);
  if (device_at(device) == nullptr) return kInvalidDevice;
  return put_text(id, room, pci_of(device)), kSuccess;
}
FAKE_CUDA_API cuDeviceTotalMem_v2(size_t* bytes, int device) {
  FAKE_CUDA_CALL(kInit);
  if (device_at(device) == nullptr) return kInvalidDevice;
  return *bytes = kDeviceBytes, kSuccess;
}
FAKE_CUDA_API cuDeviceGetAttribute(int* value, int attribute, int device) {
  FAKE_CUDA_CALL(kInit);
  const Device* of = device_at(device);
  if (of == nullptr) return kInvalidDevice;
  if (attribute <= 0 || attribute > 150) return kInvalidValue;
  auto found = of->attributes.find(attribute);
  return *value = found != of->attributes.end() ? found->second : 0, kSuccess;
}
FAKE_CUDA_API cuGetErrorName(int code, const char** name) {
  const Error* error = error_of(code);
  *name = error != nullptr ? error->name : nullptr;
  return error != nullptr ? kSuccess : kInvalidValue;
}
FAKE_CUDA_API cuGetErrorString(int code, const char** text) {
  const Error* error = error_of(code);
  *text = error != nullptr ? error->text : nullptr;
  return error != nullptr ? kSuccess : kInvalidValue;
}
