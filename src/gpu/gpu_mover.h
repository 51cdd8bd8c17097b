// Moves memory of GPUs for one loop, through slots of pinned memory and the GPUs' threads; host
// memory where it is staged, too.
//
// What arrives for a GPU whose slots do not come back goes into spare memory, up to four times the
// loop's part of the staging, and from there through a slot when there is one. A chunk that arrives
// keeps its slot for as long as its peer takes to send it, so those never take all: what lies in
// spare memory is moved in the GPU's time, not in a peer's.
#pragma once

#include <memory>
#include <vector>

#include "gpu/gpu.h"
#include "gpu/slots.h"
#include "memory/host_mover.h"
#include "memory/mover.h"
#include "memory/pages.h"

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
  uint8_t* take_spare(uint64_t bytes, const Place& place) override;
  void give_spare(uint8_t* spare, const Place& place) override;
  RegionExtent slot_extent(const uint8_t* slot) const override;
  uint64_t begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) override;
  uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory,
                    const Place& place) override;
  uint64_t begin_unpack(const Unpacking& what) override { return host_.begin_unpack(what); }
  MoveState look(uint64_t ticket, MoveEnd* end) override;
  bool take_back(uint64_t ticket) override;
  bool tells() override;
  void tell_nobody() noexcept override;

 private:
  // Memory that stands in for a slot, and its move once it has begun: first it waits for a slot.
  struct Spare {
    Pages memory;
    uint64_t bytes = 0;
    std::span<const iovec> to;
    uint8_t* slot = nullptr;
    bool begun = false;
    uint32_t number = 0;  // of its move, once it has begun
  };
  // This loop's part of a GPU.
  struct Part {
    Gpu* gpu = nullptr;
    Gpu::Part of;
    Slots slots[2];                              // of each use
    std::vector<std::unique_ptr<Spare>> spares;  // null: a free place
    uint64_t spare_bytes = 0;
    size_t spares_waiting = 0;
  };
  Part* part_of(const Place& place);
  Part* part_with(const uint8_t* slot);
  static Slots& slots_of(Part& part, SlotUse use) { return part.slots[static_cast<size_t>(use)]; }
  static uint32_t index_of(const Part& part, SlotUse use, const uint8_t* slot);
  static uint8_t* take(SlotUse use, SlotHolder holder, uint64_t bytes, Part& part);
  uint64_t begin(bool out, std::span<const iovec> memory, const Place& place, uint8_t* slot);
  static size_t spare_at(const Part& part, const uint8_t* at);  // none: how many there are
  static uint32_t push(Part& part, bool out, std::span<const iovec> memory, uint8_t* slot);
  static void say_why(const Gpu& gpu, MoveEnd* end) noexcept;
  void give_slot_of(Spare& spare);
  static MoveState look_at(Part& part, uint32_t number, MoveEnd* end);
  MoveState look_at_spare(Part& part, Spare& spare, MoveEnd* end);

  const OpenGpus& gpus_;
  MoveWatcher& watcher_;
  HostMover host_;
  std::vector<std::unique_ptr<Part>> parts_;  // by device
};

}  // namespace tcpx::gpu
