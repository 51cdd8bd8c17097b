// The bytes of a message from a peer.
//
// Long ones are mapped by themselves, so that freeing them gives the memory back: malloc keeps what
// was freed below blocks in use, and maps ever fewer of them itself once it has seen long ones
// freed. And they are not filled with zeros before they are received into.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>
#include <vector>

namespace tcpx {

template <class T>
struct MessageAllocator {
  using value_type = T;
  static constexpr size_t kMappedBytes = 128 << 10;

  MessageAllocator() = default;
  template <class U>
  MessageAllocator(const MessageAllocator<U>&) {}  // NOLINT: a conversion

  T* allocate(size_t count) {
    size_t bytes = count * sizeof(T);
    if (bytes < kMappedBytes) return static_cast<T*>(::operator new(bytes));
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(at);
  }
  void deallocate(T* at, size_t count) {
    size_t bytes = count * sizeof(T);
    if (bytes < kMappedBytes)
      ::operator delete(at);
    else
      munmap(at, bytes);
  }
  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
  bool operator==(const MessageAllocator&) const { return true; }
};

using MessageBytes = std::vector<uint8_t, MessageAllocator<uint8_t>>;

}  // namespace tcpx
