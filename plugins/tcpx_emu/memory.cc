#include "memory.h"

#include <cinttypes>

#include "log.h"
#include "misuse.h"
#include "pool.h"

namespace tcpx_emu {

namespace {

std::string hex(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(pointer));
  return text;
}

Result check_cuda(const World& world, int device, void* data, int size) {
  if (!world.settings.dma_buf) {
    EMU_WARN("p2pdma api won't work: NCCL_USE_DMA_BUF=0");
    return nccl::kInternalError;
  }
  if (reinterpret_cast<uintptr_t>(data) % kPageBytes != 0)
    return refuse(world, device, rule::kAligned, "data not aligned: " + hex(data) + " vs 4096");
  if (size % static_cast<int>(kPageBytes) != 0)
    return refuse(world, device, rule::kAligned,
                  "size not aligned: " + std::to_string(size) + " vs 4096");
  return nccl::kSuccess;
}

}  // namespace

Result register_memory(const World& world, int device, void* data, int size, int type,
                       Region** out) {
  if (type != nccl::kPtrHost && type != nccl::kPtrCuda) {
    EMU_WARN("regMr: type %d is neither host (1) nor CUDA (2)", type);
    return nccl::kInternalError;
  }
  if (size < 0) {
    EMU_WARN("regMr: size %d", size);
    return nccl::kInternalError;
  }
  if (type == nccl::kPtrCuda)
    if (Result rc = check_cuda(world, device, data, size)) return rc;
  *out = new Region{static_cast<uint8_t*>(data), static_cast<uint64_t>(size), type};
  return nccl::kSuccess;
}

}  // namespace tcpx_emu
