// CUDA as tests use it: through the driver's own functions, on the fake driver or, with
// TCPX_TEST_CUDA=real, on the real one. Whoever looks for libcuda.so.1 afterwards finds the same.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../emu/fake_cuda/fake_cuda.h"
#include "memory.h"

namespace tcpx::test {

struct Cuda {
  using Pointer = uint64_t;
  using Context = struct CudaContextTag*;
  using Stream = struct CudaStreamTag*;

  int (*init)(unsigned);
  int (*device_get_count)(int*);
  int (*primary_ctx_retain)(Context*, int);
  int (*ctx_push)(Context);
  int (*ctx_pop)(Context*);
  int (*mem_alloc)(Pointer*, size_t);
  int (*mem_free)(Pointer);
  int (*stream_create)(Stream*, unsigned);
  int (*stream_synchronize)(Stream);
  int (*copy_to_device)(Pointer, const void*, size_t, Stream);
  int (*copy_to_host)(void*, Pointer, size_t, Stream);
  int (*get_error_string)(int, const char**);

  void* library = nullptr;
  const FakeCuda* fake = nullptr;  // null: this is the real one
  int devices = 0;

  // What a device is used with here: its primary context, and a stream that waits for no other.
  struct Device {
    Context context = nullptr;
    Stream stream = nullptr;
  };
  std::vector<Device> each;

  // Any other function of the driver's, by its exported name.
  template <class F>
  F* function(const char* name) const {
    void* found = ::dlsym(library, name);
    if (found == nullptr) throw std::runtime_error(std::string("libcuda.so.1 has no ") + name);
    F* out = nullptr;
    std::memcpy(&out, &found, sizeof found);
    return out;
  }

  void check(int code, const char* what) const {
    if (code == 0) return;
    const char* text = nullptr;
    get_error_string(code, &text);
    throw std::runtime_error(std::string(what) + ": CUDA error " + std::to_string(code) + ", " +
                             (text != nullptr ? text : "of no name"));
  }
};

// Loads it at the first call, which throws if there is none; whoever forks before it is a process
// of its own.
inline const Cuda& cuda();

// The calls of a scope are the test's own: the fake neither counts them nor has them fail. The
// device's primary context is current in it.
class CudaScope {
 public:
  explicit CudaScope(int device) : CudaScope(cuda(), device) {}
  CudaScope(const Cuda& on, int device) : cuda_(on) {
    if (cuda_.fake != nullptr) before_ = cuda_.fake->set_aside(true);
    cuda_.check(cuda_.ctx_push(cuda_.each[static_cast<size_t>(device)].context), "cuCtxPush");
  }
  ~CudaScope() {
    Cuda::Context popped;
    cuda_.ctx_pop(&popped);
    if (cuda_.fake != nullptr) cuda_.fake->set_aside(before_);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const Cuda& cuda_;
  bool before_ = false;
};

namespace cuda_detail {

inline bool wants_real_cuda() {
  const char* which = std::getenv("TCPX_TEST_CUDA");
  return which != nullptr && std::string(which) == "real";
}

inline void find_functions(Cuda* c) {
  auto find = [c](const char* name, auto** out) {
    *out = c->function<std::remove_pointer_t<std::remove_reference_t<decltype(*out)>>>(name);
  };
  find("cuInit", &c->init);
  find("cuDeviceGetCount", &c->device_get_count);
  find("cuDevicePrimaryCtxRetain", &c->primary_ctx_retain);
  find("cuCtxPushCurrent_v2", &c->ctx_push);
  find("cuCtxPopCurrent_v2", &c->ctx_pop);
  find("cuMemAlloc_v2", &c->mem_alloc);
  find("cuMemFree_v2", &c->mem_free);
  find("cuStreamCreate", &c->stream_create);
  find("cuStreamSynchronize", &c->stream_synchronize);
  find("cuMemcpyHtoDAsync_v2", &c->copy_to_device);
  find("cuMemcpyDtoHAsync_v2", &c->copy_to_host);
  find("cuGetErrorString", &c->get_error_string);
}

inline Cuda* load_cuda() {
  auto* c = new Cuda;
  const char* file = wants_real_cuda() ? "libcuda.so.1" : TCPX_TEST_FAKE_CUDA_PATH;
  c->library = ::dlopen(file, RTLD_NOW | RTLD_GLOBAL);
  if (c->library == nullptr) throw std::runtime_error(::dlerror());
  find_functions(c);
  c->fake = static_cast<const FakeCuda*>(::dlsym(c->library, "fakeCuda"));
  const bool before = c->fake != nullptr && c->fake->set_aside(true);
  c->check(c->init(0), "cuInit");
  c->check(c->device_get_count(&c->devices), "cuDeviceGetCount");
  if (c->fake != nullptr) c->fake->set_aside(before);
  c->each.resize(static_cast<size_t>(c->devices));
  return c;
}

// A device that no test asks for gets no context.
inline void use_device(Cuda* c, int device) {
  if (device < 0 || device >= c->devices)
    throw std::runtime_error("there is no GPU " + std::to_string(device));
  Cuda::Device& use = c->each[static_cast<size_t>(device)];
  if (use.context != nullptr) return;
  const bool before = c->fake != nullptr && c->fake->set_aside(true);
  c->check(c->primary_ctx_retain(&use.context, device), "cuDevicePrimaryCtxRetain");
  {
    CudaScope scope(*c, device);
    c->check(c->stream_create(&use.stream, 1), "cuStreamCreate");
  }
  if (c->fake != nullptr) c->fake->set_aside(before);
}

inline Cuda& the_cuda() {
  static Cuda& only = *load_cuda();
  return only;
}

}  // namespace cuda_detail

inline const Cuda& cuda() {
  return cuda_detail::the_cuda();
}
// The table of the fake; null on the real driver.
inline const FakeCuda* fake_cuda() {
  return cuda().fake;
}

// Memory of a GPU, between two zones that nobody may touch. Its bytes are seen through copies that
// are over when the call returns, and that no other stream delays.
class DeviceMemory final : public Memory {
 public:
  static constexpr uint64_t kGuard = 4096;

  explicit DeviceMemory(uint64_t size, int device = 0, uint64_t skew = 0)
      : device_(device), skew_(skew) {
    cuda_detail::use_device(&cuda_detail::the_cuda(), device);
    size_ = size;
    CudaScope scope(device_);
    cuda().check(cuda().mem_alloc(&base_, size + skew + 2 * kGuard), "cuMemAlloc");
    address_ = reinterpret_cast<void*>(base_ + kGuard + skew);
    put(base_, guard_bytes(kGuard + skew));
    put(base_ + kGuard + skew + size, guard_bytes(kGuard));
    poison();
  }
  ~DeviceMemory() override { free(); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  int device() const { return device_; }
  uint64_t device_address() const { return base_ + kGuard + skew_; }

  void store(uint64_t offset, const void* bytes, uint64_t length) override {
    CudaScope scope(device_);
    copy_in(device_address() + offset, bytes, length);
  }
  void load(uint64_t offset, void* bytes, uint64_t length) const override {
    CudaScope scope(device_);
    copy_out(bytes, device_address() + offset, length);
  }
  // A byte that nobody sends, everywhere.
  void poison() {
    std::vector<uint8_t> bytes(std::min<uint64_t>(size_, 1 << 20), kPoison);
    for (uint64_t at = 0; at < size_; at += bytes.size())
      store(at, bytes.data(), std::min<uint64_t>(bytes.size(), size_ - at));
  }
  // Offset of the first byte that is another; -1: none.
  int64_t mismatch_with(const void* bytes, uint64_t offset, uint64_t length) const {
    std::vector<uint8_t> now(length);
    load(offset, now.data(), length);
    const auto* wanted = static_cast<const uint8_t*>(bytes);
    for (uint64_t i = 0; i < length; ++i)
      if (now[i] != wanted[i]) return static_cast<int64_t>(i);
    return -1;
  }
  std::string damage() const override {
    int64_t bad = guard_.mismatch(get(base_, kGuard + skew_).data(), kGuard + skew_, 0);
    if (bad >= 0) return std::to_string(kGuard + skew_ - bad) + " bytes before the memory";
    bad = guard_.mismatch(get(device_address() + size_, kGuard).data(), kGuard, 0);
    if (bad >= 0) return std::to_string(bad) + " bytes behind the memory";
    return {};
  }
  // At once: whoever touches it later breaks the context.
  void free() {
    if (base_ == 0) return;
    CudaScope scope(device_);
    cuda().mem_free(std::exchange(base_, 0));  // fails in a context that is lost
  }

 private:
  static constexpr uint8_t kPoison = 0xCD;

  std::vector<uint8_t> guard_bytes(uint64_t length) const {
    std::vector<uint8_t> bytes(length);
    guard_.fill(bytes.data(), length, 0);
    return bytes;
  }
  Cuda::Stream stream() const { return cuda().each[static_cast<size_t>(device_)].stream; }
  void copy_in(uint64_t to, const void* bytes, uint64_t length) const {
    cuda().check(cuda().copy_to_device(to, bytes, length, stream()), "cuMemcpyHtoDAsync");
    cuda().check(cuda().stream_synchronize(stream()), "cuStreamSynchronize");
  }
  void copy_out(void* bytes, uint64_t from, uint64_t length) const {
    cuda().check(cuda().copy_to_host(bytes, from, length, stream()), "cuMemcpyDtoHAsync");
    cuda().check(cuda().stream_synchronize(stream()), "cuStreamSynchronize");
  }
  void put(uint64_t to, const std::vector<uint8_t>& bytes) {
    copy_in(to, bytes.data(), bytes.size());
  }
  std::vector<uint8_t> get(uint64_t from, uint64_t length) const {
    std::vector<uint8_t> bytes(length);
    CudaScope scope(device_);
    copy_out(bytes.data(), from, length);
    return bytes;
  }

  Pattern guard_{0x6a2d};
  int device_;
  uint64_t skew_;
  uint64_t base_ = 0;
};

}  // namespace tcpx::test
