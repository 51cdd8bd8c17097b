// Page-aligned memory of our own: what passes between lanes and memory. Untouched pages cost
// nothing.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tcpx {

class Pages {
 public:
  static constexpr size_t kPage = 4096;

  Pages() = default;
  ~Pages() { reset(); }
  Pages(Pages&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }

  bool allocate(size_t bytes) {
    reset();
    size_t size = (bytes + kPage - 1) / kPage * kPage;
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return false;
    base_ = static_cast<uint8_t*>(base);
    size_ = size;
    return true;
  }
  void reset() {
    if (base_ != nullptr) munmap(base_, size_);
    base_ = nullptr;
    size_ = 0;
  }
  uint8_t* data() const { return base_; }
  size_t size() const { return size_; }

 private:
  uint8_t* base_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tcpx
