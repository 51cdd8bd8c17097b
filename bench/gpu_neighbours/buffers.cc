#include "gpu_neighbours/buffers.h"

#include <cstring>
#include <vector>

#include "gpu_neighbours/failure.h"
#include "support/pattern.h"

namespace tcpx::bench {

namespace {

constexpr uint64_t kSlots = 4;  // buffers per kind of memory, for transfers at once

}  // namespace

Buffers::Buffers(const Settings& settings) : settings_(settings) {
  if (!host_.allocate(kSlots * settings.bytes)) fail("not enough memory");
  std::memset(host_.data(), 1, host_.size());
}

const Cuda& Buffers::load_cuda() {
  if (cuda_ != nullptr) return *cuda_;
  cuda_ = std::make_unique<Cuda>(settings_.device);
  cuda_->check(cuda_->mem_alloc(&device_, kSlots * settings_.bytes), "cuMemAlloc");
  return *cuda_;
}

tcpx_region Buffers::register_kind(Engine& engine, bool cuda, uint32_t access) const {
  void* address = cuda ? reinterpret_cast<void*>(device_) : static_cast<void*>(host_.data());
  tcpx_region region = 0;
  check(engine.register_memory(address, kSlots * settings_.bytes, access, &region), "register");
  return region;
}

int64_t Buffers::obey(const Task& task, bool client) {
  std::vector<uint8_t> image;
  uint8_t* at = host_.data() + task.slot * settings_.bytes;
  const Cuda::Pointer device = device_ + task.slot * settings_.bytes;
  if (task.cuda) {
    image.resize(settings_.bytes);
    at = image.data();
    if (task.what == Do::kCheck)
      cuda_->check(cuda_->copy_to_host(at, device, settings_.bytes), "cuMemcpyDtoH");
  }
  const int64_t wrong = apply(task, at, client);
  if (task.cuda && task.what != Do::kCheck)
    cuda_->check(cuda_->copy_to_device(device, at, settings_.bytes), "cuMemcpyHtoD");
  return wrong;
}

int64_t Buffers::apply(const Task& task, uint8_t* at, bool client) const {
  const Cut cut{settings_.bytes, task.scattered};
  const test::Pattern pattern(0x6e1b, task.pattern);
  if (task.what == Do::kPoison) std::memset(at, 0xcd, settings_.bytes);
  if (task.what == Do::kPoison) return -1;
  for (uint64_t i = 0; i < cut.pieces(); ++i) {
    uint8_t* piece = at + cut.place(i, client);
    if (task.what == Do::kFill) pattern.fill(piece, cut.length(), i * cut.length());
    if (task.what != Do::kCheck) continue;
    const int64_t wrong = pattern.mismatch(piece, cut.length(), i * cut.length());
    if (wrong >= 0) return static_cast<int64_t>(cut.place(i, client)) + wrong;
  }
  return -1;
}

}  // namespace tcpx::bench
