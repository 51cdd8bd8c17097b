// Which sources of a loop are to be woken: a bit each, set by any thread without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace tcpx {

class WakeBits {
 public:
  explicit WakeBits(uint32_t most_sources) : bits_(most_sources / 64) {}

  void set(uint32_t source) {
    bits_[source / 64].fetch_or(uint64_t{1} << (source % 64), std::memory_order_release);
    any_.store(true);
  }
  bool any() const { return any_.load(); }
  // Calls f for every source whose bit is set, and clears it. Whether there was one.
  template <class F>
  bool take(size_t sources, F&& f) {
    any_.exchange(false);  // not a store: the bits below must not be read before it
    bool found = false;
    for (size_t word = 0; word * 64 < sources; ++word) {
      if (bits_[word].load(std::memory_order_relaxed) == 0) continue;
      uint64_t bits = bits_[word].exchange(0, std::memory_order_acquire);
      for (; bits != 0; bits &= bits - 1) {
        f(static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(__builtin_ctzll(bits)));
        found = true;
      }
    }
    return found;
  }

 private:
  std::atomic<bool> any_{false};
  std::vector<std::atomic<uint64_t>> bits_;
};

}  // namespace tcpx
