// Handles that can be told from released ones: a slot's number and how often the slot was used, as
// the value of a pointer that nobody follows. A call costs two loads; releasing twice is harmless,
// and using a released one is an error with words.
//
// No locks: a child of fork() finds every slot as it was. Slots are freed with all handles.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace tcpx {

template <class T>
class Handles {
 public:
  Handles() = default;
  Handles(const Handles&) = delete;
  ~Handles() {
    for (auto& block : blocks_) delete block.load();
  }
  // The value is never 0. Throws std::bad_alloc, also beyond 2^24 handles at a time.
  uint64_t add(std::unique_ptr<T> object) {
    const uint32_t index = take_slot();
    Slot& slot = *find_slot(index);
    slot.object.store(object.release(), std::memory_order_relaxed);
    const uint64_t use = slot.use.load(std::memory_order_relaxed) + 1;
    slot.use.store(use, std::memory_order_release);
    return use << kIndexBits | index;
  }
  // Null: it was released, or never was one.
  T* find(uint64_t handle) const {
    const Slot* slot = find_slot(index_of(handle));
    if (slot == nullptr || slot->use.load(std::memory_order_acquire) != use_of(handle))
      return nullptr;
    return is_live(use_of(handle)) ? slot->object.load(std::memory_order_relaxed) : nullptr;
  }
  // The same, and it is one no longer. One of several callers gets it.
  std::unique_ptr<T> take(uint64_t handle) {
    T* object = find(handle);
    if (object == nullptr) return nullptr;
    Slot& slot = *find_slot(index_of(handle));
    uint64_t use = use_of(handle);
    if (!slot.use.compare_exchange_strong(use, use + 1)) return nullptr;
    if (use + 1 < kLastUse) give_slot(index_of(handle));  // else it has had its time
    return std::unique_ptr<T>(object);
  }

 private:
  static constexpr uint32_t kIndexBits = 24, kBlockBits = 10;
  static constexpr uint32_t kBlocks = 1u << (kIndexBits - kBlockBits), kNone = UINT32_MAX;
  static constexpr uint64_t kLastUse = (uint64_t{1} << (64 - kIndexBits)) - 2;
  struct Slot {
    std::atomic<uint64_t> use{0};     // odd: live
    std::atomic<T*> object{nullptr};  // whoever comes with a released handle may still read it
    std::atomic<uint32_t> next_free{kNone};
  };
  using Block = std::array<Slot, 1u << kBlockBits>;
  // The first of the free ones, and how often that has changed.
  struct Free {
    uint32_t index;
    uint32_t changes;
  };

  static uint32_t index_of(uint64_t handle) { return handle & ((1u << kIndexBits) - 1); }
  static uint64_t use_of(uint64_t handle) { return handle >> kIndexBits; }
  static bool is_live(uint64_t use) { return use % 2 == 1; }

  Slot* find_slot(uint32_t index) const {
    Block* block = blocks_[index >> kBlockBits].load(std::memory_order_acquire);
    return block == nullptr ? nullptr : &(*block)[index & ((1u << kBlockBits) - 1)];
  }
  uint32_t take_slot() {
    Free first = free_.load();
    while (first.index != kNone) {
      Free next{find_slot(first.index)->next_free.load(), first.changes + 1};
      if (free_.compare_exchange_weak(first, next)) return first.index;
    }
    return new_slot();
  }
  void give_slot(uint32_t index) {
    Slot& slot = *find_slot(index);
    Free first = free_.load(), next{index, 0};
    do {
      slot.next_free.store(first.index);
      next.changes = first.changes + 1;
    } while (!free_.compare_exchange_weak(first, next));
  }
  uint32_t new_slot() {
    uint32_t index = used_.load();
    do {
      if (index >> kIndexBits != 0) throw std::bad_alloc();
      auto& place = blocks_[index >> kBlockBits];
      if (place.load() != nullptr) continue;
      auto made = std::make_unique<Block>();
      Block* none = nullptr;
      if (place.compare_exchange_strong(none, made.get())) made.release();
    } while (!used_.compare_exchange_weak(index, index + 1));
    return index;
  }

  std::array<std::atomic<Block*>, kBlocks> blocks_{};
  std::atomic<uint32_t> used_{0};
  std::atomic<Free> free_{Free{kNone, 0}};
};

}  // namespace tcpx
