// What the user of a GPU does beside transfers: a kernel on every SM, a thread that allocates all
// the time, matrix products.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "base/clock.h"
#include "cuda_driver.h"
#include "emu/fake_cuda/fake_cuda.h"

namespace tcpx::bench {

// A kernel of as many threads as the SMs have room for, so that no other block starts.
class Holder {
 public:
  explicit Holder(const Cuda& cuda);
  void start(uint64_t milliseconds);
  bool holds() const;
  void await() const;

 private:
  const Cuda& cuda_;
  const FakeCuda* fake_ = nullptr;  // the tests' driver has no such kernel, but holds all
  Nanos until_ = 0;
  unsigned blocks_ = 0;
  Cuda::Function hold_ = nullptr;
  Cuda::Stream stream_ = nullptr;
};

// A thread in cuMemAlloc and cuMemFree, until end().
class Allocator {
 public:
  explicit Allocator(const Cuda& cuda) : cuda_(cuda), thread_([this] { run(); }) {}
  ~Allocator() { end(); }
  uint64_t end();  // how often it has allocated

 private:
  void run();

  const Cuda& cuda_;
  std::atomic<bool> stop_{false};
  uint64_t count_ = 0;
  std::thread thread_;
};

// bf16 products by cuBLAS, in a stream of the user's.
class Gemm {
 public:
  Gemm(const Cuda& cuda, const std::string& file);
  // Products per second.
  double run(double seconds) const;

 private:
  void one() const;

  const Cuda& cuda_;
  void* handle_ = nullptr;
  Cuda::Stream stream_ = nullptr;
  Cuda::Pointer matrices_[3] = {};
  int (*gemm_)(void*, int, int, int, int, int, const void*, Cuda::Pointer, int, int, Cuda::Pointer,
               int, int, const void*, Cuda::Pointer, int, int, int, int) = nullptr;
};

}  // namespace tcpx::bench
