#include "gpu/cuda_driver.h"

#include <dlfcn.h>

#include <cstring>

#include "base/mutex.h"
#include "base/text.h"

namespace tcpx::gpu {

namespace {

template <class F>
bool find(void* library, const char* name, F* out) {
  void* found = dlsym(library, name);
  std::memcpy(out, &found, sizeof found);
  return found != nullptr;
}

bool find_looking(void* library, CudaDriver* out) {
  return find(library, "cuPointerGetAttributes", &out->pointer_get_attributes) &&
         find(library, "cuDeviceGetAttribute", &out->device_get_attribute) &&
         find(library, "cuGetErrorString", &out->get_error_string);
}

void find_moving(void* library, CudaDriver* out) {
  auto need = [&](const char* name, auto* function) {
    if (!find(library, name, function) && out->missing.empty()) out->missing = name;
  };
  need("cuDriverGetVersion", &out->driver_get_version);
  need("cuDeviceGet", &out->device_get);
  need("cuDeviceGetName", &out->device_get_name);
  need("cuDeviceGetPCIBusId", &out->device_get_pci_bus_id);
  need("cuDevicePrimaryCtxRetain", &out->primary_ctx_retain);
  need("cuDevicePrimaryCtxRelease_v2", &out->primary_ctx_release);
  need("cuCtxPushCurrent_v2", &out->ctx_push_current);
  need("cuCtxPopCurrent_v2", &out->ctx_pop_current);
  need("cuPointerSetAttribute", &out->pointer_set_attribute);
  need("cuMemHostAlloc", &out->mem_host_alloc);
  need("cuMemFreeHost", &out->mem_free_host);
  need("cuStreamCreateWithPriority", &out->stream_create_with_priority);
  need("cuStreamDestroy_v2", &out->stream_destroy);
  need("cuStreamQuery", &out->stream_query);
  need("cuStreamWriteValue32_v2", &out->stream_write_value32);  // driver 515 and later
  need("cuMemcpyHtoDAsync_v2", &out->memcpy_htod_async);
  need("cuMemcpyDtoHAsync_v2", &out->memcpy_dtoh_async);
  need("cuModuleLoadData", &out->module_load_data);
  need("cuModuleUnload", &out->module_unload);
  need("cuModuleGetFunction", &out->module_get_function);
  need("cuLaunchKernel", &out->launch_kernel);
  out->can_move = out->missing.empty();
}

}  // namespace

std::string CudaDriver::text_of(cu::Result result) const {
  const char* text = nullptr;
  if (get_error_string(result, &text) != cu::kSuccess || text == nullptr)
    return strf("CUDA error {}", result);
  return strf("CUDA error {}: {}", result, text);
}

// An application may load it after our first look. Once it is there it stays.
const CudaDriver* loaded_cuda_driver() {
  static Mutex mu;
  static CudaDriver driver TCPX_GUARDED_BY(mu);
  static bool found TCPX_GUARDED_BY(mu) = false;
  MutexLock lock(mu);
  if (found) return &driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  found = library != nullptr && find_looking(library, &driver);
  if (found) find_moving(library, &driver);
  return found ? &driver : nullptr;
}

}  // namespace tcpx::gpu
