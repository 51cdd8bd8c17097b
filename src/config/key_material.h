// What a key of an operator has to be made of.
#pragma once

#include <string>
#include <string_view>

namespace tcpx::config {

inline constexpr size_t kMinKeyBytes = 16;
inline constexpr size_t kMaxKeyBytes = 4096;
// The server proves itself first: whoever connects gets a value to try keys against, as many a
// second as he has cores for. So a key is random; this catches those that clearly are not.
inline constexpr size_t kMinDifferentBytes = 8;

// What is wrong with the key, without showing it; empty: nothing.
std::string key_weakness(std::string_view key);

}  // namespace tcpx::config
