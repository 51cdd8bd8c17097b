// Memory a test registers, by kind. A new kind (GPU) is one more subclass and one more line in
// allocate(): tests only use store() and load().
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "pattern.h"

namespace tcpx::test {

class Memory {
 public:
  virtual ~Memory() = default;
  void* address() const { return address_; }
  uint64_t size() const { return size_; }

  virtual void store(uint64_t offset, const void* bytes, uint64_t length) = 0;
  virtual void load(uint64_t offset, void* bytes, uint64_t length) const = 0;
  // "" or which guard byte around the memory was overwritten.
  virtual std::string damage() const { return {}; }
  virtual uint8_t* host() const { return nullptr; }  // null: not addressable by the CPU
  // At once: whoever touches it later gets a fault.
  virtual void give_back() = 0;

 protected:
  void* address_ = nullptr;
  uint64_t size_ = 0;
};

// Host memory at an odd address, between two zones that nobody may touch.
class HostMemory final : public Memory {
 public:
  static constexpr uint64_t kGuard = 4096;

  explicit HostMemory(uint64_t size, uint64_t skew = 0) : skew_(skew) {
    size_ = size;
    mapped_ = size + skew + 2 * kGuard;
    void* base =
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::runtime_error("mmap failed");
    base_ = static_cast<uint8_t*>(base);
    address_ = base_ + kGuard + skew;
    guard_.fill(base_, kGuard + skew, 0);
    guard_.fill(host() + size, kGuard, 0);
    std::memset(host(), kPoison, size);
  }
  ~HostMemory() override {
    if (base_ != nullptr) ::munmap(base_, mapped_);
  }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  uint8_t* host() const override { return static_cast<uint8_t*>(address_); }
  void store(uint64_t offset, const void* bytes, uint64_t length) override {
    std::memcpy(host() + offset, bytes, length);
  }
  void load(uint64_t offset, void* bytes, uint64_t length) const override {
    std::memcpy(bytes, host() + offset, length);
  }
  std::string damage() const override {
    int64_t bad = guard_.mismatch(base_, kGuard + skew_, 0);
    if (bad >= 0) return std::to_string(kGuard + skew_ - bad) + " bytes before the memory";
    bad = guard_.mismatch(host() + size_, kGuard, 0);
    if (bad >= 0) return std::to_string(bad) + " bytes behind the memory";
    return {};
  }
  void give_back() override {
    ::munmap(base_, mapped_);
    base_ = nullptr;
    address_ = nullptr;
  }

 private:
  static constexpr int kPoison = 0xCD;
  Pattern guard_{0x6a2d};
  uint64_t skew_;
  uint64_t mapped_ = 0;
  uint8_t* base_ = nullptr;
};

// Address space of any size; only touched pages cost memory. Reads as zeros.
class SparseMemory final : public Memory {
 public:
  explicit SparseMemory(uint64_t size) {
    size_ = size;
    address_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address_ == MAP_FAILED) throw std::runtime_error("mmap of sparse memory failed");
  }
  ~SparseMemory() override {
    if (size_ > 0) ::munmap(address_, size_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  uint8_t* host() const override { return static_cast<uint8_t*>(address_); }
  void give_back() override {
    ::munmap(address_, size_);
    size_ = 0;
  }
  void store(uint64_t offset, const void* bytes, uint64_t length) override {
    std::memcpy(host() + offset, bytes, length);
  }
  void load(uint64_t offset, void* bytes, uint64_t length) const override {
    std::memcpy(bytes, host() + offset, length);
  }
};

// "cuda" or "cuda:N": memory of a GPU, on the driver that fake_cuda.h chooses.
std::unique_ptr<Memory> allocate_device(const std::string& kind, uint64_t size, uint64_t skew);

// Address space of any size over one piece of memory that is mapped again and again: byte x is byte
// x mod kPeriod. For the content of a source; two chunks at different places within 8 GiB never
// begin alike, for the period has no factor in common with their sizes but the page.
class RepeatedMemory final : public Memory {
 public:
  static constexpr uint64_t kPeriod = (64 << 20) + 4096;

  explicit RepeatedMemory(uint64_t size) {
    size_ = size;
    const int file = ::memfd_create("repeated", MFD_CLOEXEC);
    void* space =
        ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool mapped = file >= 0 && space != MAP_FAILED && ::ftruncate(file, kPeriod) == 0;
    for (uint64_t at = 0; mapped && at < size; at += kPeriod)
      mapped = ::mmap(static_cast<uint8_t*>(space) + at, std::min(kPeriod, size - at),
                      PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    if (file >= 0) ::close(file);
    if (!mapped) throw std::runtime_error("mmap of repeated memory failed");
    address_ = space;
  }
  ~RepeatedMemory() override { RepeatedMemory::give_back(); }
  void give_back() override {
    if (address_ != nullptr) ::munmap(address_, size_);
    address_ = nullptr;
  }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;

  uint8_t* host() const override { return static_cast<uint8_t*>(address_); }
  void store(uint64_t offset, const void* bytes, uint64_t length) override {
    std::memcpy(host() + offset, bytes, length);
  }
  void load(uint64_t offset, void* bytes, uint64_t length) const override {
    std::memcpy(bytes, host() + offset, length);
  }
};

// TCPX_TEST_MEMORY=KIND runs a suite with memory of another kind.
inline std::string usual_memory() {
  const char* kind = std::getenv("TCPX_TEST_MEMORY");
  return kind != nullptr ? kind : "host";
}

// The allocator table: kinds by name.
inline std::unique_ptr<Memory> allocate(const std::string& kind, uint64_t size, uint64_t skew = 0) {
  if (kind == "host") return std::make_unique<HostMemory>(size, skew);
  if (kind == "sparse") return std::make_unique<SparseMemory>(size);
  if (kind.starts_with("cuda")) return allocate_device(kind, size, skew);
  if (kind == "repeated") return std::make_unique<RepeatedMemory>(size);
  throw std::runtime_error("no such memory kind: " + kind);
}

// ---- content, through store and load only ----------------------------------------------------
inline constexpr uint64_t kStep = 1 << 20;

// The pattern begins anew with every period of repeated memory.
inline uint64_t content_size(const std::string& kind, uint64_t size) {
  return kind == "repeated" ? std::min(size, RepeatedMemory::kPeriod) : size;
}

inline void fill(Memory& memory, uint64_t offset, uint64_t length, const Pattern& pattern,
                 uint64_t position) {
  if (memory.host() != nullptr) return pattern.fill(memory.host() + offset, length, position);
  std::vector<uint8_t> step(std::min(length, kStep));
  for (uint64_t at = 0; at < length; at += kStep) {
    uint64_t n = std::min(kStep, length - at);
    pattern.fill(step.data(), n, position + at);
    memory.store(offset + at, step.data(), n);
  }
}

// Offset of the first wrong byte in [offset, offset + length), or -1.
inline int64_t mismatch(const Memory& memory, uint64_t offset, uint64_t length,
                        const Pattern& pattern, uint64_t position) {
  if (memory.host() != nullptr) return pattern.mismatch(memory.host() + offset, length, position);
  std::vector<uint8_t> step(std::min(length, kStep));
  for (uint64_t at = 0; at < length; at += kStep) {
    uint64_t n = std::min(kStep, length - at);
    memory.load(offset + at, step.data(), n);
    int64_t bad = pattern.mismatch(step.data(), n, position + at);
    if (bad >= 0) return static_cast<int64_t>(at) + bad;
  }
  return -1;
}

// Where a word of `memory` is what the pattern has in its place; size() if none is: then none of
// the pattern's bytes was copied here.
inline uint64_t first_trace(const Memory& memory, const Pattern& pattern) {
  std::vector<uint8_t> seen(memory.size()), unwanted(memory.size());
  memory.load(0, seen.data(), seen.size());
  pattern.fill(unwanted.data(), unwanted.size(), 0);
  for (uint64_t at = 0; at + 8 <= seen.size(); at += 8)
    if (std::memcmp(seen.data() + at, unwanted.data() + at, 8) == 0) return at;
  return memory.size();
}

inline uint64_t digest(const Memory& memory, uint64_t offset, uint64_t length) {
  if (memory.host() != nullptr) return Digest::of(memory.host() + offset, length);
  std::vector<uint8_t> all(length);
  memory.load(offset, all.data(), length);
  return Digest::of(all.data(), length);
}

}  // namespace tcpx::test
