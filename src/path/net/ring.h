// A queue of at most N elements without allocation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tcpx::net {

template <class T, size_t N>
class Ring {
 public:
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == N; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return items_[(first_ + i) % N]; }
  const T& operator[](size_t i) const { return items_[(first_ + i) % N]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }
  T& push(const T& item) {
    T& place = items_[(first_ + count_++) % N];
    place = item;
    return place;
  }
  void pop() {
    first_ = (first_ + 1) % N;
    --count_;
  }

 private:
  std::array<T, N> items_{};
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace tcpx::net
