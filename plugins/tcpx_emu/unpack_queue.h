// The queue that the GPU unpacks from, bit for bit as NCCL's kernels know it: descriptors and
// counts in mapped host memory, and 24 bytes in device memory that point there.
#pragma once

#include <memory>

#include "abi.h"
#include "device.h"

namespace tcpx_emu {

class UnpackQueue {
 public:
  // Null when there is no memory.
  static std::unique_ptr<UnpackQueue> make(Device& device, void* bounce_base);
  ~UnpackQueue();
  UnpackQueue(const UnpackQueue&) = delete;
  UnpackQueue& operator=(const UnpackQueue&) = delete;

  // For the caller of accept().
  void describe(nccl::DeviceHandle* out) const;

  static int slot_of(uint64_t ordinal) { return static_cast<int>(ordinal % nccl::kUnpackSlots); }
  nccl::Fragment* fragments(uint64_t ordinal) { return meta().fragments[slot_of(ordinal)]; }
  void take(uint64_t ordinal) { meta().count[slot_of(ordinal)] = 0; }
  // Everything written before is seen by whoever sees the count.
  void publish(uint64_t ordinal, uint64_t count);

 private:
  UnpackQueue(Device& device, const Mapped& memory) : device_(device), memory_(memory) {}
  nccl::UnpackMeta& meta() { return *reinterpret_cast<nccl::UnpackMeta*>(memory_.host); }

  Device& device_;
  const Mapped memory_;
  void* handle_ = nullptr;
};

}  // namespace tcpx_emu
