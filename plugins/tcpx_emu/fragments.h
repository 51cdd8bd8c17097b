// How a received piece is scattered over pages: lengths, and where in its page each fragment lies.
// Depends only on settings, seed and the ordinal of the receive, never on how TCP cut the stream.
#pragma once

#include <cstdint>

#include "settings.h"

namespace tcpx_emu {

// A small reproducible generator.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 0x1234567) {}
  uint64_t next();
  uint64_t below(uint64_t n) { return next() % n; }

 private:
  uint64_t state_;
};

class FragmentPlan {
 public:
  // Of the receive with that ordinal and `total` bytes.
  FragmentPlan(const Settings& settings, uint64_t ordinal, uint64_t total);

  // The next fragment of a piece that has `left` bytes to go: 1 to 4096 bytes at `offset` of a
  // page.
  void next(uint64_t left, uint32_t* length, uint32_t* offset);

 private:
  Fragments kind_;
  Random random_;
  uint32_t least_;  // length of random fragments, so that a request of one chunk fits its slot
};

}  // namespace tcpx_emu
