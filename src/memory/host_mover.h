// Moves host memory through slots, by the loop's own hand: what memory that lanes cannot touch goes
// through, for tests and to see what it costs (option `staging`).
#pragma once

#include <vector>

#include "memory/mover.h"

namespace tcpx {

class HostMover final : public Mover {
 public:
  explicit HostMover(size_t slots_of_each_use);
  bool stages(const Place& place) const override { return place.is_host(); }
  size_t free_slots(SlotUse use) const override { return of(use).size(); }
  uint8_t* take_slot(SlotUse use, uint64_t bytes) override;
  void give_slot(SlotUse use, uint8_t* slot) override;
  uint64_t begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) override;
  uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory,
                    const Place& place) override;
  MoveState look(uint64_t, std::string*) override { return MoveState::kDone; }

 private:
  struct Slot {
    std::unique_ptr<uint8_t[]> bytes;  // as many as were ever asked for
    uint64_t size = 0;
  };
  std::vector<size_t>& of(SlotUse use) { return free_[use == SlotUse::kSend ? 0 : 1]; }
  const std::vector<size_t>& of(SlotUse use) const { return free_[use == SlotUse::kSend ? 0 : 1]; }

  std::vector<Slot> slots_;
  std::vector<size_t> free_[2];
};

class HostMovers final : public Movers {
 public:
  bool serves(const Place& place) const override { return place.is_host(); }
  std::unique_ptr<Mover> make() override;
};

}  // namespace tcpx
