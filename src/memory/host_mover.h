// Moves host memory by the loop's own hand: beside a net plugin, and through slots what memory that
// lanes cannot touch would go through, for tests and to see what it costs (option `staging`).
#pragma once

#include <vector>

#include "memory/mover.h"
#include "memory/pages.h"
#include "memory/scatter_list.h"

namespace tcpx {

class HostMover final : public Mover {
 public:
  static constexpr uint64_t kWhole = UINT64_MAX;
  struct Shape {
    size_t slots;            // of each use
    bool stages;             // host memory, although lanes reach it
    uint64_t step = kWhole;  // bytes moved by a look
  };

  explicit HostMover(const Shape& shape);
  // For a loop whose lanes reach host memory by themselves.
  static Shape for_streams(bool stages);
  PlaceMask staged() const override { return shape_.stages ? kHostBit : 0; }
  size_t free_slots(SlotUse use, const Place&) override { return of(use).size(); }
  uint8_t* take_slot(SlotUse use, uint64_t bytes, const Place&) override;
  void give_slot(SlotUse use, uint8_t* slot) override;
  RegionExtent slot_extent(const uint8_t* slot) const override;
  uint64_t begin_out(std::span<const iovec> memory, const Place& place, uint8_t* slot) override;
  uint64_t begin_in(const uint8_t* slot, std::span<const iovec> memory,
                    const Place& place) override;
  uint64_t begin_unpack(const Unpacking& what) override;
  MoveState look(uint64_t ticket, MoveEnd* end) override;
  bool by_hand() const override { return shape_.step != kWhole; }

 private:
  struct Slot {
    Pages memory;  // as much as was ever asked for
    uint64_t id = 0;
  };
  enum class Way : uint8_t { kOut, kIn, kUnpack };
  struct Job {
    Way way = Way::kOut;
    ScatterList memory;
    uint64_t at = 0, end = 0;  // of the memory
    uint8_t* slot = nullptr;
    std::span<const Fragment> fragments;  // left to be unpacked
    const uint8_t* pool = nullptr;
    Nanos begun = 0;  // of those through slots
  };
  std::vector<size_t>& of(SlotUse use) { return free_[use == SlotUse::kSend ? 0 : 1]; }
  const std::vector<size_t>& of(SlotUse use) const { return free_[use == SlotUse::kSend ? 0 : 1]; }
  uint64_t begin(const Job& job);
  uint64_t begin_copy(Way way, std::span<const iovec> memory, uint8_t* slot);
  bool copy_some(Job& job) const;
  bool unpack_some(Job& job) const;

  const Shape shape_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_[2];
  uint64_t last_id_ = 0;
  std::vector<Pages> outgrown_;  // a plugin may still know them
  std::vector<Job> jobs_;        // ticket - 1
  std::vector<size_t> free_jobs_;
};

class HostMovers final : public Movers {
 public:
  explicit HostMovers(bool stages) : stages_(stages) {}
  Status admit(const void* base, uint64_t length, const Place& place) override;
  std::unique_ptr<Mover> make(MoverFor use, MoveWatcher&) override;

 private:
  const bool stages_;
};

}  // namespace tcpx
