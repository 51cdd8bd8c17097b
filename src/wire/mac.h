// SHA-256 and HMAC-SHA256 by OpenSSL, for everything that is signed or checked.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"

namespace tcpx::wire {

// libcrypto frees its state when the process exits. An application may exit with engines alive,
// whose threads shake hands until the very end: they would find it gone and crash. Call it before
// anything else here, any number of times; a libcrypto that somebody in the process has used
// before keeps what it was told then.
void keep_crypto_until_the_end();

inline constexpr size_t kDigestBytes = 32;
using Digest = std::array<uint8_t, kDigestBytes>;

// False only if OpenSSL fails (no memory, no provider); *out is then unchanged. A caller treats
// that as a failed check, never as a passed one.
[[nodiscard]] bool hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> message,
                               Digest* out);
[[nodiscard]] bool sha256(std::span<const uint8_t> message, Digest* out);
// When they fail. An engine that could be made has computed both, so what is missing is memory,
// which OpenSSL answers without an exception.
Status no_digest(const char* what);

// Takes the same time wherever the first difference is. Different sizes are different.
[[nodiscard]] bool equal_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b);

}  // namespace tcpx::wire
