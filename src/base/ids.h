// Random bytes for ids, nonces and secrets, and hex for showing ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tcpx {

// From the kernel (getrandom). On failure `out` must not be used: there is no weaker fallback.
Status random_bytes(std::span<uint8_t> out);

// Lower case, two digits per byte.
std::string to_hex(std::span<const uint8_t> bytes);
// Exactly out.size() bytes, upper or lower case; false otherwise, and `out` is unchanged.
bool from_hex(std::string_view text, std::span<uint8_t> out);

}  // namespace tcpx
