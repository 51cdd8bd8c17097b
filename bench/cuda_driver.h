// The CUDA driver's functions that benchmarks use, declared by ourselves and found at run time.
// TCPX_TEST_CUDA_LIBRARY names another file to open. To be opened after fork(): CUDA lives in one
// process.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

namespace tcpx::bench {

struct Cuda {
  using Pointer = unsigned long long;
  using Context = struct CudaContextHandle*;
  using Stream = struct CudaStreamHandle*;
  using Event = struct CudaEventHandle*;
  using Module = struct CudaModuleHandle*;
  using Function = struct CudaFunctionHandle*;
  static constexpr int kNotReady = 600;
  static constexpr unsigned kNonBlocking = 1, kDisableTiming = 2, kPortable = 1, kWriteCombined = 4;

  int (*init)(unsigned);
  int (*error_string)(int, const char**);
  int (*device_get)(int*, int);
  int (*device_get_attribute)(int*, int, int);
  int (*device_get_name)(char*, int, int);
  int (*primary_ctx_retain)(Context*, int);
  int (*ctx_set_current)(Context);
  int (*ctx_synchronize)();
  int (*mem_alloc)(Pointer*, size_t);
  int (*mem_free)(Pointer);
  int (*mem_host_alloc)(void**, size_t, unsigned);
  int (*mem_free_host)(void*);
  int (*mem_host_register)(void*, size_t, unsigned);
  int (*mem_host_unregister)(void*);
  int (*memset)(Pointer, unsigned char, size_t);
  int (*copy_to_device)(Pointer, const void*, size_t);
  int (*copy_to_host)(void*, Pointer, size_t);
  int (*copy_to_device_async)(Pointer, const void*, size_t, Stream);
  int (*copy_to_host_async)(void*, Pointer, size_t, Stream);
  int (*stream_create)(Stream*, unsigned);
  int (*stream_destroy)(Stream);
  int (*stream_query)(Stream);
  int (*stream_synchronize)(Stream);
  int (*event_create)(Event*, unsigned);
  int (*event_destroy)(Event);
  int (*event_record)(Event, Stream);
  int (*event_query)(Event);
  int (*module_load)(Module*, const void*);
  int (*module_get_function)(Function*, Module, const char*);
  int (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                Stream, void**, void**);

  Context context = nullptr;
  int device = 0;

  // The context of that GPU is current in the calling thread afterwards. Throws what is missing.
  explicit Cuda(int ordinal) {
    find_functions();
    check(init(0), "cuInit");
    check(device_get(&device, ordinal), "cuDeviceGet");
    check(primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain");
    enter();
  }
  // For every other thread that makes calls.
  void enter() const { check(ctx_set_current(context), "cuCtxSetCurrent"); }

  void check(int code, const char* what) const {
    if (code == 0) return;
    const char* text = nullptr;
    if (error_string(code, &text) != 0 || text == nullptr) text = "of no name";
    throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(code) + ", " +
                             text);
  }
  void await(Event event) const {
    int code;
    while ((code = event_query(event)) == kNotReady) __builtin_ia32_pause();
    check(code, "cuEventQuery");
  }

 private:
  void find_functions() {
    const char* other = std::getenv("TCPX_TEST_CUDA_LIBRARY");
    void* library = dlopen(other != nullptr ? other : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    const auto find = [library](const char* name, auto* out) {
      void* found = dlsym(library, name);
      if (found == nullptr) throw std::runtime_error(std::string("the CUDA driver has no ") + name);
      std::memcpy(out, &found, sizeof *out);
    };
    find("cuInit", &init);
    find("cuGetErrorString", &error_string);
    find("cuDeviceGet", &device_get);
    find("cuDeviceGetAttribute", &device_get_attribute);
    find("cuDeviceGetName", &device_get_name);
    find("cuDevicePrimaryCtxRetain", &primary_ctx_retain);
    find("cuCtxSetCurrent", &ctx_set_current);
    find("cuCtxSynchronize", &ctx_synchronize);
    find("cuMemAlloc_v2", &mem_alloc);
    find("cuMemFree_v2", &mem_free);
    find("cuMemHostAlloc", &mem_host_alloc);
    find("cuMemFreeHost", &mem_free_host);
    find("cuMemHostRegister_v2", &mem_host_register);
    find("cuMemHostUnregister", &mem_host_unregister);
    find("cuMemsetD8_v2", &memset);
    find("cuMemcpyHtoD_v2", &copy_to_device);
    find("cuMemcpyDtoH_v2", &copy_to_host);
    find("cuMemcpyHtoDAsync_v2", &copy_to_device_async);
    find("cuMemcpyDtoHAsync_v2", &copy_to_host_async);
    find("cuStreamCreate", &stream_create);
    find("cuStreamDestroy_v2", &stream_destroy);
    find("cuStreamQuery", &stream_query);
    find("cuStreamSynchronize", &stream_synchronize);
    find("cuEventCreate", &event_create);
    find("cuEventDestroy_v2", &event_destroy);
    find("cuEventRecord", &event_record);
    find("cuEventQuery", &event_query);
    find("cuModuleLoadData", &module_load);
    find("cuModuleGetFunction", &module_get_function);
    find("cuLaunchKernel", &launch);
  }
};

}  // namespace tcpx::bench
