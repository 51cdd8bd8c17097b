// Memory of a GPU, by the CUDA driver's own functions. Nothing links to the driver: it is opened
// when the first memory is asked for, by each process for itself (CUDA does not survive a fork).
// TCPX_TEST_CUDA_LIBRARY names another file to open.
#pragma once

#include <cstdint>
#include <string>

namespace tcpx::tool {

class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(int device, uint64_t size);  // throws Failure, which says what is missing
  CudaMemory(CudaMemory&& other) noexcept;
  CudaMemory& operator=(CudaMemory&& other) noexcept;
  ~CudaMemory();

  void* address() const { return reinterpret_cast<void*>(address_); }
  uint64_t size() const { return size_; }

  // Over when they return. From its first byte on. Throw Failure.
  void put(const uint8_t* from, uint64_t length) const;
  void get(uint8_t* to, uint64_t length) const;

 private:
  int device_ = 0;
  uintptr_t address_ = 0;  // 0: none
  uint64_t size_ = 0;
};

// 0: there is no driver, or no GPU. Opens the driver.
int cuda_device_count();

}  // namespace tcpx::tool
