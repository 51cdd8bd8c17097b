#include "wire/mac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <climits>

#include "base/text.h"

namespace tcpx::wire {

void keep_crypto_until_the_end() {
  (void)OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
}

bool hmac_sha256(std::span<const uint8_t> key, std::span<const uint8_t> message, Digest* out) {
  if (key.size() > INT_MAX) return false;  // OpenSSL takes the key's length as an int
  static constexpr uint8_t kEmpty = 0;     // an empty span may hold nullptr, which HMAC() refuses
  Digest digest;
  unsigned int length = 0;
  const uint8_t* key_data = key.empty() ? &kEmpty : key.data();
  const uint8_t* data = message.empty() ? &kEmpty : message.data();
  if (HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()), data, message.size(),
           digest.data(), &length) == nullptr ||
      length != kDigestBytes) {
    return false;
  }
  *out = digest;
  return true;
}

bool sha256(std::span<const uint8_t> message, Digest* out) {
  Digest digest;
  unsigned int length = 0;
  if (EVP_Digest(message.data(), message.size(), digest.data(), &length, EVP_sha256(), nullptr) !=
          1 ||
      length != kDigestBytes) {
    return false;
  }
  *out = digest;
  return true;
}

bool equal_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && (a.empty() || CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0);
}

Status no_digest(const char* what) {
  return bad_call(TCPX_NO_MEMORY,
                  strf("{}: OpenSSL has no memory for it, or is not allowed it", what));
}

}  // namespace tcpx::wire
