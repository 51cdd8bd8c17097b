// CUDA as tests use it: through the driver's own functions, on the fake driver or, with
// TCPX_TEST_CUDA=real, on the real one; with TCPX_TEST_CUDA=counted on the real one with a count of
// all calls (tests/emu/counting_cuda). Whoever looks for libcuda.so.1 afterwards finds the same.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../emu/fake_cuda/cuda_counts.h"
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
  const FakeCuda* fake = nullptr;      // null: this is the real one
  const CudaCounts* counts = nullptr;  // null: nobody counts
  int devices = 0;

  // What a device is used with here: its primary context, and a stream that waits for no other.
  struct Device {
    Context context = nullptr;
    Stream stream = nullptr;
  };
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

bool wants_real_cuda();  // TCPX_TEST_CUDA says so, counted or not
// Loaded at the first call, which throws if there is none.
const Cuda& cuda();
// Its primary context is retained at the first call; a device that no test asks for gets none.
const Cuda::Device& cuda_device(int device);
// The test has released or reset its primary context: the next one to ask retains it anew.
void forget_cuda_device(int device);

// Engines order what one after the other does to the same memory through sockets, which
// ThreadSanitizer does not see: without this the fake's streams race there.
void order_operations();

// The calls of a scope are the test's own: they are not counted, and the fake has none fail.
class Aside {
 public:
  Aside() {
    if (cuda().counts != nullptr) before_ = cuda().counts->set_aside(true);
  }
  ~Aside() {
    if (cuda().counts != nullptr) cuda().counts->set_aside(before_);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;

 private:
  bool before_ = false;
};

// And the device's primary context is current in it.
class CudaScope {
 public:
  explicit CudaScope(int device) {
    cuda().check(cuda().ctx_push(cuda_device(device).context), "cuCtxPushCurrent");
  }
  ~CudaScope() {
    Cuda::Context popped;
    cuda().ctx_pop(&popped);
  }
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  Aside aside_;
};

// The table of the fake; null on the real driver.
inline const FakeCuda* fake_cuda() {
  return cuda().fake;
}
// Calls that were made; null on the real driver, unless it is counted.
inline const CudaCounts* cuda_counts() {
  return cuda().counts;
}

// Memory of a GPU, between two zones that nobody may touch. Its bytes are seen through copies that
// are over when the call returns, and that no other stream delays.
class DeviceMemory final : public Memory {
 public:
  static constexpr uint64_t kGuard = 4096;

  explicit DeviceMemory(uint64_t size, int device = 0, uint64_t skew = 0)
      : device_(device), skew_(skew) {
    size_ = size;
    CudaScope scope(device_);
    cuda().check(cuda().mem_alloc(&base_, size + skew + 2 * kGuard), "cuMemAlloc");
    address_ = reinterpret_cast<void*>(base_ + kGuard + skew);
    put(base_, guard_bytes(kGuard + skew));
    put(base_ + kGuard + skew + size, guard_bytes(kGuard));
    poison();
  }
  ~DeviceMemory() override { DeviceMemory::give_back(); }
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
  void give_back() override {
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
  Cuda::Stream stream() const { return cuda_device(device_).stream; }
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
