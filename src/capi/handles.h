// Handles that can be told from released ones: a slot's number and how often the slot was given, as
// the value of a pointer that nobody follows. Releasing twice is harmless, using a released one is
// an error with words, and what is in use when it is released stays until it is not: a word per
// slot counts who uses it, two atomics for each call.
//
// No locks: a child of fork() finds every slot as it was. Slots are freed with all handles.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace tcpx {

template <class T>
class Handles {
  struct Slot;

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
    const uint64_t live = given(slot.word.load(std::memory_order_relaxed)) + 1;
    slot.word.store(live << kUserBits, std::memory_order_release);
    return live << kIndexBits | index;
  }

  // Keeps the object of a handle while it lives. Empty: it was released, or never was one.
  class Use {
   public:
    Use() = default;
    Use(Use&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (slot_ != nullptr) slot_->leave();
    }
    explicit operator bool() const { return slot_ != nullptr; }
    T* operator->() const { return slot_->object.load(std::memory_order_relaxed); }
    T& operator*() const { return *operator->(); }

   private:
    friend class Handles;
    explicit Use(Slot* slot) : slot_(slot) {}
    Slot* slot_ = nullptr;
  };
  Use use(uint64_t handle) {
    Slot* slot = find_slot(index_of(handle));
    return Use(slot != nullptr && slot->enter(given_of(handle)) ? slot : nullptr);
  }

  // What is released: nobody finds it any more, and whoever is inside may be told to leave. Its end
  // waits until they have left, and frees it.
  class Retired {
   public:
    Retired() = default;
    Retired(Retired&& other) noexcept
        : handles_(other.handles_),
          index_(other.index_),
          in_use_(other.in_use_),
          object_(std::move(other.object_)) {}
    Retired& operator=(Retired&&) = delete;
    ~Retired() {
      if (object_ != nullptr) handles_->free_slot(index_);
    }
    explicit operator bool() const { return object_ != nullptr; }
    T* operator->() const { return object_.get(); }
    T& operator*() const { return *object_; }
    // Whether anybody was inside when it was retired; nobody comes after that.
    bool in_use() const { return in_use_; }
    // It is never freed, and nobody is waited for.
    T* leave_for_ever() { return object_.release(); }

   private:
    friend class Handles;
    Retired(Handles* handles, uint32_t index, bool in_use, T* object)
        : handles_(handles), index_(index), in_use_(in_use), object_(object) {}
    Handles* handles_ = nullptr;
    uint32_t index_ = 0;
    bool in_use_ = false;
    std::unique_ptr<T> object_;
  };
  // One of several callers gets it.
  Retired retire(uint64_t handle) {
    Slot* slot = find_slot(index_of(handle));
    bool in_use = false;
    if (slot == nullptr || !slot->retire(given_of(handle), &in_use)) return {};
    return {this, index_of(handle), in_use, slot->object.load(std::memory_order_relaxed)};
  }

 private:
  static constexpr uint32_t kIndexBits = 24, kUserBits = 24, kBlockBits = 10;
  static constexpr uint32_t kBlocks = 1u << (kIndexBits - kBlockBits), kNone = UINT32_MAX;
  static constexpr uint64_t kLastGiven = (uint64_t{1} << (64 - kIndexBits)) - 2;
  // A cache line each: threads that poll transfers of their own do not meet here.
  struct alignas(64) Slot {
    // How often it was given (odd: it is now), and below that how many use it.
    std::atomic<uint64_t> word{0};
    std::atomic<T*> object{nullptr};
    std::atomic<uint32_t> next_free{kNone};

    bool enter(uint64_t of) {
      uint64_t now = word.load(std::memory_order_relaxed);
      do {
        if (given(now) != of || !is_live(of)) return false;
      } while (!word.compare_exchange_weak(now, now + 1, std::memory_order_acquire,
                                           std::memory_order_relaxed));
      return true;
    }
    void leave() {
      const uint64_t now = word.fetch_sub(1, std::memory_order_acq_rel) - 1;
      if (!is_live(given(now)) && users(now) == 0) word.notify_all();
    }
    bool retire(uint64_t of, bool* in_use) {
      uint64_t now = word.load(std::memory_order_relaxed);
      do {
        if (given(now) != of || !is_live(of)) return false;
      } while (!word.compare_exchange_weak(now, now + (uint64_t{1} << kUserBits),
                                           std::memory_order_acq_rel, std::memory_order_relaxed));
      *in_use = users(now) > 0;
      return true;
    }
    void await_users() const {
      uint64_t now;
      while (users(now = word.load(std::memory_order_acquire)) > 0)
        word.wait(now, std::memory_order_acquire);
    }
  };
  using Block = std::array<Slot, 1u << kBlockBits>;
  // The first of the free ones, and how often that has changed.
  struct Free {
    uint32_t index;
    uint32_t changes;
  };

  static uint32_t index_of(uint64_t handle) { return handle & ((1u << kIndexBits) - 1); }
  static uint64_t given_of(uint64_t handle) { return handle >> kIndexBits; }
  static uint64_t given(uint64_t word) { return word >> kUserBits; }
  static uint64_t users(uint64_t word) { return word & ((uint64_t{1} << kUserBits) - 1); }
  static bool is_live(uint64_t given) { return given % 2 == 1; }

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
  void free_slot(uint32_t index) {
    Slot& slot = *find_slot(index);
    slot.await_users();
    if (given(slot.word.load(std::memory_order_relaxed)) >= kLastGiven)
      return;  // it has had its time
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
      if (place.compare_exchange_strong(none, made.get())) (void)made.release();
    } while (!used_.compare_exchange_weak(index, index + 1));
    return index;
  }

  std::array<std::atomic<Block*>, kBlocks> blocks_{};
  std::atomic<uint32_t> used_{0};
  std::atomic<Free> free_{Free{kNone, 0}};
};

}  // namespace tcpx
