#include "gpu_here.h"

#include <dlfcn.h>
#include <unistd.h>

namespace tcpx_nixl {

namespace {

bool has_driver_loaded() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  dlclose(library);  // only our hold on it
  return true;
}

// The device that every use of CUDA opens. A container without GPUs has none, though it sees the
// host's /proc/driver/nvidia; an image may have the library and no GPU.
bool was_given_a_gpu() {
  return access("/dev/nvidiactl", R_OK | W_OK) == 0;
}

}  // namespace

bool gpu_may_be_used() {
  return has_driver_loaded() || was_given_a_gpu();
}

}  // namespace tcpx_nixl
