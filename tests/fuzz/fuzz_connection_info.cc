// Connection info and region descriptions. Bit 0 of the first byte picks the blob, bit 1 says
// whether the receiver has the shared key, bit 2 repairs version, length and check before decoding:
// without that the fuzzer would never get behind the HMAC.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "fuzz_check.h"
#include "wire/blobs.h"
#include "wire/bytes.h"
#include "wire/mac.h"

namespace {

using namespace tcpx;
using namespace tcpx::wire;

constexpr std::string_view kSharedKey = "fuzzing key, 16 bytes or more";
constexpr std::string_view kInfoLabel = "tcpx-p2p connection info v1";

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void check_error(const Status& status) {
  FUZZ_CHECK(status.code() == TCPX_TAMPERED || status.code() == TCPX_VERSION_MISMATCH ||
             status.code() == TCPX_INVALID_ARGUMENT || status.code() == TCPX_AUTH_FAILED);
  FUZZ_CHECK(!status.text().empty());
}

void repair_info(std::vector<uint8_t>* bytes) {
  if (bytes->size() < 96) bytes->resize(96);
  if (bytes->size() > kMaxConnectionInfoBytes) bytes->resize(kMaxConnectionInfoBytes);
  const auto head = std::span(*bytes).first<64>();
  put<0>(head, kInfoMagic);
  put<4>(head, kInfoVersion);
  put<6>(head, static_cast<uint16_t>(bytes->size()));
  std::span<const uint8_t> key;
  if (head[8] == static_cast<uint8_t>(AuthMode::kSecretInside)) key = head.subspan<32, 32>();
  if (head[8] == static_cast<uint8_t>(AuthMode::kSharedKey)) key = as_bytes(kSharedKey);
  Digest derived, check;
  FUZZ_CHECK(hmac_sha256(as_bytes(kInfoLabel), key, &derived));
  FUZZ_CHECK(hmac_sha256(derived, std::span(*bytes).first(bytes->size() - kDigestBytes), &check));
  std::copy(check.begin(), check.end(), bytes->end() - kDigestBytes);
}

void repair_region(std::vector<uint8_t>* bytes) {
  bytes->resize(kRegionDescriptionBytes);
  const auto head = std::span(*bytes).first<64>();
  put<0>(head, kRegionMagic);
  put<4>(head, kRegionVersion);
  Digest digest;
  FUZZ_CHECK(sha256(head, &digest));
  std::copy_n(digest.begin(), 16, bytes->begin() + 64);
}

void run_info(const std::vector<uint8_t>& bytes, std::span<const uint8_t> key) {
  ConnectionInfo info;
  if (Status status = decode_connection_info(bytes, key, &info); !status) {
    check_error(status);
    FUZZ_CHECK(info == ConnectionInfo{});
    return;
  }
  FUZZ_CHECK(info.name.size() < kNameBytes);
  FUZZ_CHECK(info.addresses.size() >= 1 && info.addresses.size() <= kMaxAddresses);
  FUZZ_CHECK(info.auth != AuthMode::kSharedKey || !key.empty());
  FUZZ_CHECK(info.auth == AuthMode::kSecretInside || all_zero(info.secret));
  FUZZ_CHECK(encode_connection_info(info, key) == bytes);  // one encoding per value
}

void run_region(const std::vector<uint8_t>& bytes) {
  RegionDescription region;
  if (Status status = decode_region(bytes, &region); !status) {
    check_error(status);
    FUZZ_CHECK(region == RegionDescription{});
    return;
  }
  FUZZ_CHECK((region.access & ~3u) == 0);
  const auto again = encode_region(region);
  FUZZ_CHECK(std::equal(again.begin(), again.end(), bytes.begin(), bytes.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t mode = data[0];
  std::vector<uint8_t> bytes(data + 1, data + size);
  if ((mode & 1) == 0) {
    if ((mode & 4) != 0) repair_info(&bytes);
    run_info(bytes, (mode & 2) != 0 ? as_bytes(kSharedKey) : std::span<const uint8_t>());
  } else {
    if ((mode & 4) != 0) repair_region(&bytes);
    run_region(bytes);
  }
  return 0;
}
