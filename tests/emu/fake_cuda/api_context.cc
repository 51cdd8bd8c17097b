// Contexts: primary ones, those that are made, and which is current.
#include "call.h"

using namespace fake_cuda;

FAKE_CUDA_API cuDevicePrimaryCtxRetain(Context** context, int device) {
  FAKE_CUDA_CALL(kInit);
  Device* on = device_at(device);
  if (on == nullptr) return kInvalidDevice;
  return *context = retain_primary(on), kSuccess;
}
FAKE_CUDA_API cuDevicePrimaryCtxRelease_v2(int device) {
  FAKE_CUDA_CALL(kInit);
  Device* on = device_at(device);
  if (on == nullptr) return kInvalidDevice;
  if (on->retained == 0) return kInvalidContext;
  if (--on->retained == 0) {
    destroy_context(on->primary);
    on->primary = nullptr;
  }
  return kSuccess;
}
FAKE_CUDA_API cuDevicePrimaryCtxReset_v2(int device) {
  FAKE_CUDA_CALL(kInit);
  Device* on = device_at(device);
  if (on == nullptr) return kInvalidDevice;
  if (on->primary != nullptr) destroy_context(on->primary);
  on->primary = nullptr;
  on->retained = 0;
  return kSuccess;
}
FAKE_CUDA_API cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  FAKE_CUDA_CALL(kInit);
  const Device* on = device_at(device);
  if (on == nullptr) return kInvalidDevice;
  *flags = on->primary_flags;
  *active = on->primary != nullptr;
  return kSuccess;
}
FAKE_CUDA_API cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
  FAKE_CUDA_CALL(kInit);
  Device* on = device_at(device);
  if (on == nullptr) return kInvalidDevice;
  on->primary_flags = flags;
  if (on->primary != nullptr) on->primary->flags = flags;
  return kSuccess;
}
FAKE_CUDA_API cuCtxCreate_v2(Context** context, unsigned flags, int device) {
  FAKE_CUDA_CALL(kInit);
  Device* on = device_at(device);
  if (on == nullptr) return kInvalidDevice;
  *context = make_context(on);
  (*context)->flags = flags;
  context_stack().push_back(*context);
  return kSuccess;
}
FAKE_CUDA_API cuCtxDestroy_v2(Context* context) {
  FAKE_CUDA_CALL(kInit);
  if (!is_context(context)) return kInvalidContext;
  if (current_context() == context) context_stack().pop_back();
  destroy_context(context);
  return kSuccess;
}
FAKE_CUDA_API cuCtxGetCurrent(Context** context) {
  FAKE_CUDA_CALL(kInit);
  return *context = call.context, kSuccess;
}
FAKE_CUDA_API cuCtxSetCurrent(Context* context) {
  FAKE_CUDA_CALL(kInit);
  if (context != nullptr && !is_context(context)) return kInvalidContext;
  if (!context_stack().empty()) context_stack().pop_back();
  if (context != nullptr) context_stack().push_back(context);
  return kSuccess;
}
FAKE_CUDA_API cuCtxPushCurrent_v2(Context* context) {
  FAKE_CUDA_CALL(kInit);
  if (!is_context(context)) return kInvalidContext;
  return context_stack().push_back(context), kSuccess;
}
FAKE_CUDA_API cuCtxPopCurrent_v2(Context** context) {
  FAKE_CUDA_CALL(kInit);
  if (call.context == nullptr) return kInvalidContext;
  if (context != nullptr) *context = call.context;
  return context_stack().pop_back(), kSuccess;
}
FAKE_CUDA_API cuCtxGetDevice(int* device) {
  FAKE_CUDA_CALL(kInit);
  if (call.context == nullptr) return kInvalidContext;
  return *device = call.context->device->ordinal, kSuccess;
}
FAKE_CUDA_API cuCtxSetFlags(unsigned flags) {
  FAKE_CUDA_CALL(kContext);
  return call.context->flags = flags, kSuccess;
}
FAKE_CUDA_API cuCtxGetFlags(unsigned* flags) {
  FAKE_CUDA_CALL(kContext);
  return *flags = call.context->flags, kSuccess;
}
FAKE_CUDA_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  FAKE_CUDA_CALL(kContext);
  return *least = 0, *greatest = -5, kSuccess;
}
FAKE_CUDA_API cuCtxSynchronize() {
  FAKE_CUDA_CALL(kContext);
  return call.wait_for_all(call.context);
}
FAKE_CUDA_API cuThreadExchangeStreamCaptureMode(int* mode) {
  FAKE_CUDA_CALL(kInit);
  static thread_local int now = 0;
  std::swap(now, *mode);
  return kSuccess;
}
