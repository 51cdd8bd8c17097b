// Bytes that travel outside our sockets, in the application's hands: connection info and region
// descriptions. Versioned, bounded, and checked against change.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "wire/handshake.h"

namespace tcpx::wire {

inline constexpr uint32_t kInfoMagic = 0x49504354;    // "TCPI" in memory
inline constexpr uint32_t kRegionMagic = 0x52504354;  // "TCPR"
inline constexpr uint16_t kInfoVersion = 1;
inline constexpr uint16_t kRegionVersion = 2;
inline constexpr size_t kSecretBytes = 32;
inline constexpr size_t kMaxConnectionInfoBytes = 1024;
inline constexpr size_t kRegionDescriptionBytes = 80;

// How the receiver gets the secret: with the info, from the operator's key, or not at all.
enum class AuthMode : uint8_t { kOpen = 0, kSecretInside = 1, kSharedKey = 2 };

struct ConnectionInfo {
  Uid uid{};
  AuthMode auth = AuthMode::kSecretInside;
  std::array<uint8_t, kSecretBytes> secret{};  // kSecretInside only
  std::string name;                            // at most kNameBytes - 1
  std::vector<Address> addresses;              // 1..kMaxAddresses
  bool operator==(const ConnectionInfo&) const = default;
};

// The check is HMAC-SHA256 over everything before it. Its key is `shared_key` for kSharedKey (a
// forged info is then detected), else the secret inside or a constant (damage is detected).
// Total: too long a name is cut (also at a NUL), addresses beyond kMaxAddresses are left out. Empty
// if OpenSSL fails.
std::vector<uint8_t> encode_connection_info(const ConnectionInfo& info,
                                            std::span<const uint8_t> shared_key);
// TCPX_TAMPERED for a failed check, TCPX_VERSION_MISMATCH, TCPX_INVALID_ARGUMENT for what is no
// connection info at all, TCPX_AUTH_FAILED for a kSharedKey one when `shared_key` is empty. The
// texts say which and what to do. *out is written only on success. The info's own word on `auth` is
// not yet permission to use it: see check_info_mode in src/session/auth.h.
Status decode_connection_info(std::span<const uint8_t> in, std::span<const uint8_t> shared_key,
                              ConnectionInfo* out);

struct RegionDescription {
  Uid uid{};
  uint64_t id = 0;
  uint64_t length = 0;
  uint32_t access = 0;
  uint16_t memory = TCPX_MEMORY_HOST;
  uint16_t device = 0;
  uint64_t chunk_bytes = 0;  // of a GPU's: the longest chunk, kMinChunkBytes..kMaxChunkBytes
  bool operator==(const RegionDescription&) const = default;
};

// Checked with a plain SHA-256 prefix: it detects damage. It grants nothing; the owner checks
// every access against its own table. Encoding gives zeros (which decode refuses) if OpenSSL fails;
// decoding has the codes of decode_connection_info.
std::array<uint8_t, kRegionDescriptionBytes> encode_region(const RegionDescription& region);
Status decode_region(std::span<const uint8_t> in, RegionDescription* out);

}  // namespace tcpx::wire
