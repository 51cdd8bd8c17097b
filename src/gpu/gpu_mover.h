// Moves memory of GPUs for one loop, through slots of pinned memory and the GPUs' threads; host
// memory where it is staged, too.
#pragma once

#include <memory>
#include <vector>

#include "gpu/gpu.h"
#include "memory/host_mover.h"
#include "memory/mover.h"

namespace tcpx::gpu {

// Those that are open, by device; made once, and never closed before the loops have gone.
class OpenGpus {
 public:
  static constexpr size_t kMost = kMostDevices;
  explicit OpenGpus(bool stages_host) : staged_(stages_host ? kHostBit : 0) {}
  Gpu* at(size_t device) const {
    return device < kMost ? gpus_[device].load(std::memory_order_acquire) : nullptr;
  }
  void set(uint16_t device, Gpu* gpu) {
    gpus_[device].store(gpu, std::memory_order_release);
    staged_.fetch_or(mask_of({Place::Kind::kCuda, device}), std::memory_order_release);
  }
  // Places that have to be staged, as far as there is memory of them.
  PlaceMask staged() const { return staged_.load(std::memory_order_acquire); }

 private:
  std::atomic<Gpu*> gpus_[kMost] = {};
  std::atomic<PlaceMask> staged_;
};

class GpuMover final : public Mover {
 public:
  GpuMover(const OpenGpus& gpus, MoveWatcher& watcher, bool stages_host);
  ~GpuMover() override { GpuMover::tell_nobody(); }

  PlaceMask staged() const override { return gpus_.staged(); }
  size_t free_slots(SlotUse use, const Place& place) override;
  uint8_t* take_slot(SlotUse use, uint64_t bytes, const Place& place) override;
  void give_slot(SlotUse use, uint8_t* slot) override;
  uint64_t most_bytes(const Place& place) override;
  RegionExtent slot_extent(const uint8_t* slot) const override;
  uint64_t begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) override;
  uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory,
                    const Place& place) override;
  uint64_t begin_unpack(const Unpacking& what) override { return host_.begin_unpack(what); }
  MoveState look(uint64_t ticket, MoveEnd* end) override;
  bool tells() override;
  void tell_nobody() noexcept override;

 private:
  // This loop's part of a GPU.
  struct Part {
    Gpu* gpu = nullptr;
    Gpu::Part of;
    // Per slot, those to send from first: of how many slots the piece that begins here is made; 0:
    // free, or in the middle of one.
    std::vector<uint32_t> taken;
    std::vector<bool> busy;
    size_t free[2] = {};
  };
  Part* part_of(const Place& place);
  Part* part_with(const uint8_t* slot, size_t* index);
  uint64_t begin(bool out, std::span<const iovec> memory, const Place& place, uint8_t* slot);

  const OpenGpus& gpus_;
  MoveWatcher& watcher_;
  HostMover host_;
  std::vector<std::unique_ptr<Part>> parts_;  // by device
};

}  // namespace tcpx::gpu
