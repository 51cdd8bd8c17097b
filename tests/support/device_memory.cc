#include "fake_cuda.h"

namespace tcpx::test {

std::unique_ptr<Memory> allocate_device(int device, uint64_t size, uint64_t skew) {
  return std::make_unique<DeviceMemory>(size, device, skew);
}

}  // namespace tcpx::test
