#include "failing.h"

#include <openssl/crypto.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

constexpr int64_t kOff = INT64_MIN;

std::atomic<int64_t> library_left{kOff};
std::atomic<bool> library_failed{false};
thread_local bool exempt = false;
thread_local int64_t own_left = kOff;
thread_local bool own_failed = false;

bool is_to_fail() {
  if (own_left != kOff && --own_left == 0) return own_failed = true;
  if (exempt || library_left.load(std::memory_order_relaxed) == kOff) return false;
  if (library_left.fetch_sub(1) != 1) return false;
  library_failed = true;
  return true;
}

void* allocate(std::size_t size) {
  if (is_to_fail()) return nullptr;
  return std::malloc(size == 0 ? 1 : size);
}
void* allocate(std::size_t size, std::align_val_t alignment) {
  if (is_to_fail()) return nullptr;
  auto align = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(align, (size + align - 1) / align * align);
}
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace tcpx::test {

void exempt_this_thread() {
  exempt = true;
}
void fail_on_library_threads(int64_t n) {
  library_failed = false;
  library_left = n;
}
void fail_on_this_thread(int64_t n) {
  own_failed = false;
  own_left = n;
}
bool fail_openssl_too() {
  return CRYPTO_set_mem_functions([](std::size_t size, const char*, int) { return allocate(size); },
                                  [](void* memory, std::size_t size, const char*, int) {
                                    return is_to_fail() ? nullptr : std::realloc(memory, size);
                                  },
                                  [](void* memory, const char*, int) { std::free(memory); }) == 1;
}
bool stop_failing() {
  library_left = kOff;
  own_left = kOff;
  return library_failed.exchange(false) | std::exchange(own_failed, false);
}
}  // namespace tcpx::test

void* operator new(std::size_t size) {
  return or_throw(allocate(size));
}
void* operator new[](std::size_t size) {
  return or_throw(allocate(size));
}
void* operator new(std::size_t size, std::align_val_t a) {
  return or_throw(allocate(size, a));
}
void* operator new[](std::size_t size, std::align_val_t a) {
  return or_throw(allocate(size, a));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return allocate(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
