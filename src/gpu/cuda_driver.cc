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

bool find_all(void* library, CudaDriver* out) {
  return find(library, "cuPointerGetAttributes", &out->pointer_get_attributes) &&
         find(library, "cuDeviceGetAttribute", &out->device_get_attribute) &&
         find(library, "cuGetErrorString", &out->get_error_string);
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
  found = library != nullptr && find_all(library, &driver);
  return found ? &driver : nullptr;
}

}  // namespace tcpx::gpu
