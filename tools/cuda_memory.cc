#include "cuda_memory.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "print.h"

#include "failure.h"

namespace tcpx::tool {
namespace {

using Pointer = unsigned long long;
using Context = struct CudaContextHandle*;

struct Driver {
  int (*init)(unsigned);
  int (*error_string)(int, const char**);
  int (*device_get_count)(int*);
  int (*device_get)(int*, int);
  int (*primary_ctx_retain)(Context*, int);
  int (*ctx_push)(Context);
  int (*ctx_pop)(Context*);
  int (*mem_get_info)(size_t*, size_t*);
  int (*mem_alloc)(Pointer*, size_t);
  int (*mem_free)(Pointer);
  int (*copy_to_device)(Pointer, const void*, size_t);
  int (*copy_to_host)(void*, Pointer, size_t);

  std::string missing;  // why there is none
  int devices = 0;
  std::map<int, Context> contexts;  // primary ones, kept until the process ends

  std::string text(int code) const {
    const char* text = nullptr;
    if (error_string(code, &text) != 0 || text == nullptr) text = "of no name";
    return strf("CUDA error {}, {}", code, text);
  }
  void check(int code, const char* doing) const {
    if (code != 0) throw Failure(kExitFailed, strf("{}: {}", doing, text(code)));
  }
};

const char* library_name() {
  const char* other = std::getenv("TCPX_TEST_CUDA_LIBRARY");
  return other == nullptr ? "libcuda.so.1" : other;
}

template <class F>
void find(void* library, const char* name, F* out, std::string* missing) {
  void* found = dlsym(library, name);
  std::memcpy(out, &found, sizeof found);
  if (found == nullptr && missing->empty()) *missing = strf("{} has no {}", library_name(), name);
}

void find_functions(void* library, Driver* out) {
  const auto need = [&](const char* name, auto* function) {
    find(library, name, function, &out->missing);
  };
  need("cuInit", &out->init);
  need("cuGetErrorString", &out->error_string);
  need("cuDeviceGetCount", &out->device_get_count);
  need("cuDeviceGet", &out->device_get);
  need("cuDevicePrimaryCtxRetain", &out->primary_ctx_retain);
  need("cuCtxPushCurrent_v2", &out->ctx_push);
  need("cuCtxPopCurrent_v2", &out->ctx_pop);
  need("cuMemGetInfo_v2", &out->mem_get_info);
  need("cuMemAlloc_v2", &out->mem_alloc);
  need("cuMemFree_v2", &out->mem_free);
  need("cuMemcpyHtoD_v2", &out->copy_to_device);
  need("cuMemcpyDtoH_v2", &out->copy_to_host);
}

// Global, so that the engine finds the same driver.
Driver* open_driver() {
  auto* driver = new Driver{};
  void* library = dlopen(library_name(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    driver->missing = dlerror();
    return driver;
  }
  find_functions(library, driver);
  if (!driver->missing.empty()) return driver;
  int code = driver->init(0);
  if (code == 0) code = driver->device_get_count(&driver->devices);
  if (code != 0) driver->missing = driver->text(code);
  return driver;
}

Driver& driver() {
  static Driver& only = *open_driver();
  return only;
}

class Current {
 public:
  explicit Current(int device) {
    driver().check(driver().ctx_push(driver().contexts.at(device)), "cuCtxPushCurrent");
  }
  ~Current() {
    Context popped;
    (void)driver().ctx_pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
};

void retain_context(int device) {
  Driver& cuda = driver();
  if (!cuda.missing.empty())
    throw Failure(kExitEnvironment,
                  strf("--memory cuda needs a GPU and its driver: {}", cuda.missing));
  if (device >= cuda.devices)
    throw Failure(kExitEnvironment,
                  strf("--memory cuda:{}: there are {} GPU(s) here", device, cuda.devices));
  if (cuda.contexts.contains(device)) return;
  int handle = 0;
  Context context = nullptr;
  cuda.check(cuda.device_get(&handle, device), "cuDeviceGet");
  cuda.check(cuda.primary_ctx_retain(&context, handle), "cuDevicePrimaryCtxRetain");
  cuda.contexts[device] = context;
}

std::string free_memory() {
  size_t free = 0, total = 0;
  if (driver().mem_get_info(&free, &total) != 0) return {};
  return strf("; {} of {} MiB are free", free >> 20, total >> 20);
}

}  // namespace

CudaMemory::CudaMemory(int device, uint64_t size) : device_(device), size_(size) {
  retain_context(device);
  const Current current(device);
  Pointer at = 0;
  const int code = driver().mem_alloc(&at, size);
  if (code != 0)
    throw Failure(kExitEnvironment, strf("allocating {} MiB on cuda:{}: {}{}", size >> 20, device,
                                         driver().text(code), free_memory()));
  address_ = at;
}

CudaMemory::CudaMemory(CudaMemory&& other) noexcept
    : device_(other.device_),
      address_(std::exchange(other.address_, 0)),
      size_(std::exchange(other.size_, 0)) {}

CudaMemory& CudaMemory::operator=(CudaMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(address_, other.address_);
  std::swap(size_, other.size_);
  return *this;
}

CudaMemory::~CudaMemory() {
  if (address_ == 0) return;
  Driver& cuda = driver();
  if (cuda.ctx_push(cuda.contexts.at(device_)) != 0) return;  // lost, and its memory with it
  (void)cuda.mem_free(address_);
  Context popped;
  (void)cuda.ctx_pop(&popped);
}

void CudaMemory::put(const uint8_t* from, uint64_t length) const {
  const Current current(device_);
  driver().check(driver().copy_to_device(address_, from, length), "copying content to the GPU");
}

void CudaMemory::get(uint8_t* to, uint64_t length) const {
  const Current current(device_);
  driver().check(driver().copy_to_host(to, address_, length), "copying content from the GPU");
}

int cuda_device_count() {
  return driver().missing.empty() ? driver().devices : 0;
}

}  // namespace tcpx::tool
