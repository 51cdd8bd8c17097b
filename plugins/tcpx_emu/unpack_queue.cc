#include "unpack_queue.h"

#include <atomic>

namespace tcpx_emu {

std::unique_ptr<UnpackQueue> UnpackQueue::make(Device& device, void* bounce_base) {
  Mapped memory = device.allocate(sizeof(nccl::UnpackMeta));
  if (memory.host == nullptr) return nullptr;
  std::unique_ptr<UnpackQueue> queue(new UnpackQueue(device, memory));
  nccl::UnpackHandle value{reinterpret_cast<nccl::UnpackMeta*>(memory.device), bounce_base, ~0ull};
  queue->handle_ = device.make_unpack_handle(value);
  return queue->handle_ != nullptr ? std::move(queue) : nullptr;
}

UnpackQueue::~UnpackQueue() {
  if (handle_ != nullptr) device_.drop_unpack_handle(handle_);
  device_.release(memory_);
}

void UnpackQueue::describe(nccl::DeviceHandle* out) const {
  out->type = nccl::kDeviceUnpack;
  out->version = nccl::kUnpackVersion;
  out->handle = handle_;
  out->size = sizeof(nccl::UnpackHandle);
  out->needs_proxy_progress = 1;
}

void UnpackQueue::publish(uint64_t ordinal, uint64_t count) {
  meta().count[slot_of(ordinal)] = count;
  // The reader may be a GPU, which sees the memory and no C++ object.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace tcpx_emu
