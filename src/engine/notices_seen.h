// Which notifications of a peer were delivered, so that one that comes again is not delivered
// twice.
//
// A sender has none without an answer that is kSpan or more behind the newest it sends: what is
// older was answered, or will never come. So a span of ids is all that has to be known, however
// many of them were left out.
#pragma once

#include <bitset>
#include <cstdint>

namespace tcpx {

class NoticesSeen {
 public:
  static constexpr uint64_t kSpan = 4096;

  bool has(uint64_t id) const { return id < first_ || (id - first_ < kSpan && bits_[id % kSpan]); }
  void add(uint64_t id) {
    if (id < first_) return;
    if (id - first_ >= 2 * kSpan) {
      bits_.reset();
      first_ = id - kSpan + 1;
    }
    for (; id - first_ >= kSpan; ++first_) bits_[first_ % kSpan] = false;
    bits_[id % kSpan] = true;
  }

 private:
  uint64_t first_ = 0;  // of the span; all before it are taken for delivered
  std::bitset<kSpan> bits_;
};

}  // namespace tcpx
