// Little-endian access to byte buffers. Offsets in fixed layouts are template arguments, so that a
// field outside its message does not compile; what has a variable length goes through Reader.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace tcpx::wire {

// Spelled out per byte rather than as a loop: compilers make one load or store of it.
template <size_t Offset, std::unsigned_integral T, size_t N>
constexpr void put(std::span<uint8_t, N> out, T value) {
  static_assert(N != std::dynamic_extent && Offset + sizeof(T) <= N);
  [&]<size_t... I>(std::index_sequence<I...>) {
    ((out[Offset + I] = static_cast<uint8_t>(value >> (8 * I))), ...);
  }
  (std::make_index_sequence<sizeof(T)>());
}

template <std::unsigned_integral T, size_t Offset, size_t N>
constexpr T get(std::span<const uint8_t, N> in) {
  static_assert(N != std::dynamic_extent && Offset + sizeof(T) <= N);
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return static_cast<T>(((static_cast<uint64_t>(in[Offset + I]) << (8 * I)) | ...));
  }
  (std::make_index_sequence<sizeof(T)>());
}

template <size_t Offset, size_t Count, size_t N>
constexpr void put_bytes(std::span<uint8_t, N> out, const std::array<uint8_t, Count>& bytes) {
  static_assert(N != std::dynamic_extent && Offset + Count <= N);
  std::copy(bytes.begin(), bytes.end(), out.begin() + Offset);
}

template <size_t Offset, size_t Count, size_t N>
constexpr std::array<uint8_t, Count> get_bytes(std::span<const uint8_t, N> in) {
  static_assert(N != std::dynamic_extent && Offset + Count <= N);
  std::array<uint8_t, Count> bytes{};
  std::copy_n(in.begin() + Offset, Count, bytes.begin());
  return bytes;
}

// Reserved bytes are zero, or a later version could never give them a meaning.
constexpr bool all_zero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

template <size_t Offset, size_t Count, size_t N>
constexpr bool zero_at(std::span<const uint8_t, N> in) {
  static_assert(N != std::dynamic_extent && Offset + Count <= N);
  return all_zero(in.template subspan<Offset, Count>());
}

// Takes fields off the front of a buffer; never reads past its end.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : rest_(bytes) {}

  // False, and nothing is taken, if fewer than `count` bytes are left.
  bool take(size_t count, std::span<const uint8_t>* out) {
    if (count > rest_.size()) return false;
    *out = rest_.first(count);
    rest_ = rest_.subspan(count);
    return true;
  }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const uint8_t> rest_;
};

}  // namespace tcpx::wire
