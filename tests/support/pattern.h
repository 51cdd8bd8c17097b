// Content that tells where it came from: every 8 bytes are a mix of position, seed and iteration,
// so a byte from another place, another buffer or an earlier round is never mistaken for the right
// one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

namespace tcpx::test {

inline constexpr uint64_t mix(uint64_t x) {  // splitmix64's finaliser
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Of blocks that nobody else sees, so that they may be compiled for speed and without a sanitizer
// (pattern.cc). Memory under test is touched by memcpy and memcmp alone, of which a sanitizer sees
// every byte.
void pattern_words(uint64_t base, uint64_t first, uint64_t count, uint64_t* out);
uint64_t digest_words(uint64_t value, const uint64_t* words, uint64_t count);

class Pattern {
 public:
  explicit Pattern(uint64_t seed, uint64_t iteration = 0)
      : base_(mix(seed) ^ mix(~iteration * 0x2545f4914f6cdd1d)) {}

  // Writes the bytes that belong to positions [position, position + length).
  void fill(void* out, uint64_t length, uint64_t position) const {
    each_block(length, position,
               [out = static_cast<uint8_t*>(out)](uint64_t at, const uint8_t* bytes, size_t n) {
                 std::memcpy(out + at, bytes, n);
                 return true;
               });
  }
  // Offset of the first byte that differs, or -1.
  int64_t mismatch(const void* in, uint64_t length, uint64_t position) const {
    int64_t bad = -1;
    each_block(
        length, position,
        [&, in = static_cast<const uint8_t*>(in)](uint64_t at, const uint8_t* bytes, size_t n) {
          if (std::memcmp(in + at, bytes, n) == 0) return true;
          for (bad = static_cast<int64_t>(at); in[bad] == bytes[bad - at];) ++bad;
          return false;
        });
    return bad;
  }

 private:
  template <class F>
  void each_block(uint64_t length, uint64_t position, F&& f) const {
    uint64_t words[512];
    for (uint64_t at = 0; at < length;) {
      uint64_t first = (position + at) / 8, skip = (position + at) % 8;
      uint64_t n = std::min<uint64_t>(length - at, sizeof words - skip);
      pattern_words(base_, first, (skip + n + 7) / 8, words);
      if (!f(at, reinterpret_cast<const uint8_t*>(words) + skip, n)) return;
      at += n;
    }
  }
  uint64_t base_;
};

// A digest that depends on every byte and its place; for comparing memory across processes.
class Digest {
 public:
  void add(const void* bytes, size_t length) {
    auto* in = static_cast<const uint8_t*>(bytes);
    uint64_t words[512];
    size_t at = 0;
    while (length - at >= 8) {
      const uint64_t count = std::min<uint64_t>((length - at) / 8, std::size(words));
      std::memcpy(words, in + at, 8 * count);
      value_ = digest_words(value_, words, count);
      at += 8 * count;
    }
    if (at == length) return;
    uint64_t word = 0;
    std::memcpy(&word, in + at, length - at);
    value_ = mix(value_ ^ word) + (length - at);
  }
  uint64_t value() const { return value_; }
  static uint64_t of(const void* bytes, size_t length) {
    Digest digest;
    digest.add(bytes, length);
    return digest.value();
  }

 private:
  uint64_t value_ = 0;
};

// A small reproducible generator for offsets, orders and delays.
class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(mix(seed)) {}
  uint64_t next() { return state_ = mix(state_); }
  uint64_t below(uint64_t n) { return next() % n; }
  template <class T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace tcpx::test
