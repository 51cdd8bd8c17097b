// A queue of fixed size that never allocates.
#pragma once

#include <array>
#include <cstddef>

namespace tcpx_emu {

template <class T, size_t kSize>
class Ring {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kSize; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return items_[(first_ + i) % kSize]; }
  T& front() { return items_[first_]; }
  void push(const T& item) { items_[(first_ + count_++) % kSize] = item; }
  void pop() {
    first_ = (first_ + 1) % kSize;
    --count_;
  }

 private:
  std::array<T, kSize> items_{};
  size_t first_ = 0, count_ = 0;
};

}  // namespace tcpx_emu
