// A list of memory ranges seen as one contiguous range. Copies in any order of offsets; neighbours
// in time are usually neighbours in place, so it remembers where it was.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

namespace tcpx {

class ScatterList {
 public:
  ScatterList() = default;
  explicit ScatterList(std::span<const iovec> parts) : parts_(parts) {}
  void put(uint64_t offset, const uint8_t* from, uint64_t length);
  void get(uint64_t offset, uint8_t* to, uint64_t length);
  // The memory of [offset, offset + length) if it is in one part, else nullptr; and which part.
  uint8_t* contiguous(uint64_t offset, uint64_t length, size_t* part);

 private:
  // Moves to the part that holds `offset`.
  void seek(uint64_t offset);
  template <class F>
  void each_part(uint64_t offset, uint64_t length, F&& f);

  std::span<const iovec> parts_;
  size_t at_ = 0;
  uint64_t start_ = 0;  // offset of parts_[at_]
};

}  // namespace tcpx
