#include "config/key_material.h"

#include <bitset>

#include "base/text.h"

namespace tcpx::config {

std::string key_weakness(std::string_view key) {
  if (key.size() < kMinKeyBytes || key.size() > kMaxKeyBytes) {
    return strf("has {} bytes, a key has {} to {}", key.size(), kMinKeyBytes, kMaxKeyBytes);
  }
  std::bitset<256> seen;
  for (char c : key) seen.set(static_cast<unsigned char>(c));
  if (seen.count() >= kMinDifferentBytes) return {};
  return strf(
      "has {} different bytes, a key has at least {}: anyone who connects can test guesses of it "
      "offline, so it must be random",
      seen.count(), kMinDifferentBytes);
}

}  // namespace tcpx::config
