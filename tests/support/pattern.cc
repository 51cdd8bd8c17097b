#include "pattern.h"

namespace tcpx::test {

void pattern_words(uint64_t base, uint64_t first, uint64_t count, uint64_t* out) {
  for (uint64_t i = 0; i < count; ++i) out[i] = mix(base ^ (first + i));
}

uint64_t digest_words(uint64_t value, const uint64_t* words, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) value = mix(value ^ words[i]) + 8;
  return value;
}

}  // namespace tcpx::test
