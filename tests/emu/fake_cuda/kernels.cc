#include "kernels.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "contexts.h"
#include "cuda_abi.h"
#include "device_memory.h"

namespace fake_cuda {

namespace {

constexpr size_t kMostParams = 4096;

// The parameter of tcpx_gather and tcpx_scatter.
struct Pieces {
  uint64_t slot;
  uint32_t count, pad;
  struct Piece {
    uint64_t address;
    uint32_t offset, bytes;
  } piece[255];
};
static_assert(sizeof(Pieces) == kMostParams);

size_t used_of_pieces(const void* param) {
  const auto* pieces = static_cast<const Pieces*>(param);
  return offsetof(Pieces, piece) + std::min<size_t>(pieces->count, 255) * sizeof(Pieces::Piece);
}
void gather(void** params, unsigned, unsigned) {
  const auto* all = static_cast<const Pieces*>(params[0]);
  for (uint32_t i = 0; i < all->count; ++i) {
    const Pieces::Piece& piece = all->piece[i];
    if (!kernel_copy(all->slot + piece.offset, piece.address, piece.bytes)) return;
  }
}
void scatter(void** params, unsigned, unsigned) {
  const auto* all = static_cast<const Pieces*>(params[0]);
  for (uint32_t i = 0; i < all->count; ++i) {
    const Pieces::Piece& piece = all->piece[i];
    if (!kernel_copy(piece.address, all->slot + piece.offset, piece.bytes)) return;
  }
}

std::map<std::string, Kernel>& kernels() {
  static auto& all = *new std::map<std::string, Kernel>{
      {"tcpx_gather", {gather, {sizeof(Pieces)}, used_of_pieces}},
      {"tcpx_scatter", {scatter, {sizeof(Pieces)}, used_of_pieces}}};
  return all;
}
std::mutex g_kernels_mutex;

uint8_t* touch(uint64_t address, size_t size, Touch how) {
  Context* context = context_at_work();  // null: a test looks
  const int device = context != nullptr ? context->device->ordinal : kAnyDevice;
  uint8_t* view = view_of(address, size, device, how);
  if (view == nullptr && context != nullptr) context->lose(kIllegalAddress);
  return view;
}

}  // namespace

void register_kernel(const char* name, const Kernel& kernel) {
  std::lock_guard lock(g_kernels_mutex);
  kernels()[name] = kernel;
}

const Kernel* kernel_named(const char* name) {
  std::lock_guard lock(g_kernels_mutex);
  auto found = kernels().find(name);
  return found != kernels().end() ? &found->second : nullptr;
}

std::function<void()> bind(const Kernel& kernel, void** params, unsigned grid_x, unsigned block_x) {
  auto copies = std::make_shared<std::vector<std::unique_ptr<uint8_t[]>>>();
  size_t all = 0;
  for (size_t i = 0; i < kernel.param_sizes.size(); ++i) {
    const size_t size = kernel.param_sizes[i];
    if ((all += size) > kMostParams) return {};
    copies->push_back(std::make_unique<uint8_t[]>(size));
    const size_t used = kernel.used_of_param != nullptr ? kernel.used_of_param(params[i]) : size;
    std::memcpy(copies->back().get(), params[i], used);
  }
  return [copies, function = kernel.function, grid_x, block_x] {
    std::vector<void*> pointers;
    for (auto& copy : *copies) pointers.push_back(copy.get());
    MemoryReader reader;
    function(pointers.data(), grid_x, block_x);
  };
}

uint8_t* kernel_view(uint64_t address, size_t size) {
  return touch(address, size, Touch::kWrite);
}

bool kernel_copy(uint64_t to, uint64_t from, size_t size) {
  if (size == 0) return true;
  const uint8_t* source = touch(from, size, Touch::kRead);
  if (source == nullptr) return false;
  uint8_t* target = touch(to, size, Touch::kWrite);
  if (target == nullptr) return false;
  std::memcpy(target, source, size);
  return true;
}

}  // namespace fake_cuda
