#include "wire/blobs.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/mac.h"

// Connection info, 96 + name + 20 x addresses bytes    Region description, 80 bytes
//   offset size field                                    offset size field
//        0    4 magic "TCPI"                                  0    4 magic "TCPR"
//        4    2 version                                       4    2 version
//        6    2 total bytes, with the check                   6    2 reserved, zero
//        8    1 auth mode                                     8   16 uid
//        9    1 name bytes                                   24    8 id
//       10    1 address count                                32    8 length
//       11    5 reserved, zero                               40    4 access
//       16   16 uid                                          44    2 memory: 0 host, 1 cuda
//       32   32 secret; zero unless mode is 1                46    2 device; 0 for host memory
//       64    n name                                         48   16 reserved, zero
//     64+n 20*a addresses (handshake.cc)                     64   16 SHA-256 of 0..63, its start
//      end   32 check: HMAC-SHA256 of all before it

namespace tcpx::wire {
namespace {

constexpr size_t kInfoHeadBytes = 64;
constexpr size_t kMinInfoBytes = kInfoHeadBytes + kDigestBytes;
constexpr size_t kRegionCheckedBytes = 64;
constexpr size_t kRegionCheckBytes = 16;
static_assert(kInfoHeadBytes + (kNameBytes - 1) + kMaxAddresses * kAddressBytes + kDigestBytes <=
              kMaxConnectionInfoBytes);

// Keys of the check are derived with a label: a MAC over bytes that travel in the open must not be
// usable as a proof in a handshake, which is made with the same secret.
constexpr std::string_view kInfoLabel = "tcpx-p2p connection info v1";

std::span<const uint8_t> as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

bool info_check(AuthMode auth, std::span<const uint8_t> secret, std::span<const uint8_t> shared_key,
                std::span<const uint8_t> message, Digest* out) {
  std::span<const uint8_t> key;  // kOpen: no key, the label alone
  if (auth == AuthMode::kSecretInside) key = secret;
  if (auth == AuthMode::kSharedKey) key = shared_key;
  Digest derived;
  return hmac_sha256(as_bytes(kInfoLabel), key, &derived) && hmac_sha256(derived, message, out);
}

Status tampered(std::string_view what) {
  return bad_call(TCPX_TAMPERED,
                  strf("connection info {}; get it again from the engine that made it", what));
}

// Says what the bytes are instead, where we know it: mixing the two blobs up is easy.
Status wrong_kind(std::string_view wanted, std::span<const uint8_t> in) {
  std::string_view found = "they were not made by this library";
  if (in.size() >= 4) {
    const auto magic = get<uint32_t, 0>(in.first<4>());
    if (magic == kInfoMagic) found = "they are a connection info";
    if (magic == kRegionMagic) found = "they are a region description";
  }
  if (in.empty()) found = "there are none";
  return bad_call(TCPX_INVALID_ARGUMENT, strf("these bytes are no {}: {}", wanted, found));
}

Status wrong_version(std::string_view what, uint16_t version, uint16_t ours) {
  return bad_call(TCPX_VERSION_MISMATCH,
                  strf("{} has version {}, this library reads version {}; use the same "
                       "release of tcpx-p2p on both sides",
                       what, version, ours));
}

// Everything that can be said before the check is verified. `head` is the start of `in`.
Status check_envelope(std::span<const uint8_t> in, std::span<const uint8_t, kInfoHeadBytes> head,
                      std::span<const uint8_t> shared_key) {
  const auto total = get<uint16_t, 6>(head);
  const auto auth = get<uint8_t, 8>(head);
  if (total != in.size()) {
    return tampered(
        strf("has {} bytes but was made with {}: it was cut off or added to", in.size(), total));
  }
  if (auth > static_cast<uint8_t>(AuthMode::kSharedKey)) {
    return tampered(strf("was damaged (authentication mode {})", auth));
  }
  if (auth == static_cast<uint8_t>(AuthMode::kSharedKey) && shared_key.empty()) {
    return bad_call(TCPX_AUTH_FAILED,
                    "this connection info was made by an engine with a configured key; set "
                    "auth_key_file (or auth_key) to the same key here");
  }
  return {};
}

Status verify_check(std::span<const uint8_t> in, std::span<const uint8_t, kInfoHeadBytes> head,
                    std::span<const uint8_t> shared_key) {
  const auto auth = static_cast<AuthMode>(get<uint8_t, 8>(head));
  Digest expected;
  if (!info_check(auth, head.subspan<32, kSecretBytes>(), shared_key,
                  in.first(in.size() - kDigestBytes), &expected)) {
    return no_digest("connection info: HMAC-SHA256");
  }
  if (equal_constant_time(in.last(kDigestBytes), expected)) return {};
  return tampered(auth == AuthMode::kSharedKey
                      ? "was changed, or made with another auth_key than the one set here"
                      : "was changed or damaged");
}

// After the check: fields that only a faulty or hostile maker could have got wrong.
Status parse_body(std::span<const uint8_t> in, std::span<const uint8_t, kInfoHeadBytes> head,
                  ConnectionInfo* info) {
  info->auth = static_cast<AuthMode>(get<uint8_t, 8>(head));
  info->uid = get_bytes<16, kUidBytes>(head);
  info->secret = get_bytes<32, kSecretBytes>(head);
  const size_t name_bytes = get<uint8_t, 9>(head);
  const size_t count = get<uint8_t, 10>(head);
  if (!zero_at<11, 5>(head)) return tampered("has reserved bytes set");
  if (info->auth != AuthMode::kSecretInside && !all_zero(info->secret)) {
    return tampered("carries a secret that its mode does not use");
  }
  if (name_bytes >= kNameBytes) return tampered("has too long a name");
  if (count < 1 || count > kMaxAddresses) {
    return tampered(strf("has {} addresses, not 1 to {}", count, kMaxAddresses));
  }
  Reader reader(in.subspan(kInfoHeadBytes, in.size() - kMinInfoBytes));
  std::span<const uint8_t> field;
  if (!reader.take(name_bytes, &field)) return tampered("ends inside its name");
  if (std::find(field.begin(), field.end(), uint8_t{0}) != field.end()) {
    return tampered("has a name with a NUL byte");
  }
  info->name.assign(field.begin(), field.end());
  info->addresses.resize(count);
  for (Address& address : info->addresses) {
    if (!reader.take(kAddressBytes, &field)) return tampered("ends inside its addresses");
    if (Status s = decode(field.first<kAddressBytes>(), &address); !s) {
      return tampered("is invalid (" + s.text() + ")");
    }
  }
  if (reader.left() != 0) return tampered("has bytes after its last address");
  return {};
}

}  // namespace

std::vector<uint8_t> encode_connection_info(const ConnectionInfo& info,
                                            std::span<const uint8_t> shared_key) {
  const std::string_view name =
      std::string_view(info.name).substr(0, std::min(info.name.find('\0'), kNameBytes - 1));
  const size_t count = std::min(info.addresses.size(), kMaxAddresses);
  const size_t total = kMinInfoBytes + name.size() + count * kAddressBytes;
  std::vector<uint8_t> out(total);

  const auto head = std::span(out).first<kInfoHeadBytes>();
  put<0>(head, kInfoMagic);
  put<4>(head, kInfoVersion);
  put<6>(head, static_cast<uint16_t>(total));
  put<8>(head, static_cast<uint8_t>(info.auth));
  put<9>(head, static_cast<uint8_t>(name.size()));
  put<10>(head, static_cast<uint8_t>(count));
  put_bytes<16>(head, info.uid);
  if (info.auth == AuthMode::kSecretInside) put_bytes<32>(head, info.secret);

  std::copy(name.begin(), name.end(), out.begin() + kInfoHeadBytes);
  auto rest = std::span(out).subspan(kInfoHeadBytes + name.size());
  for (size_t i = 0; i < count; ++i) {
    encode(info.addresses[i], rest.first<kAddressBytes>());
    rest = rest.subspan(kAddressBytes);
  }
  Digest check;
  if (!info_check(info.auth, info.secret, shared_key, std::span(out).first(total - kDigestBytes),
                  &check)) {
    return {};
  }
  std::copy(check.begin(), check.end(), rest.begin());
  return out;
}

Status decode_connection_info(std::span<const uint8_t> in, std::span<const uint8_t> shared_key,
                              ConnectionInfo* out) {
  // Magic and version keep their place for ever; where the check is depends on the version.
  if (in.size() < 6 || get<uint32_t, 0>(in.first<4>()) != kInfoMagic) {
    return wrong_kind("connection info", in);
  }
  const auto version = get<uint16_t, 4>(in.first<6>());
  if (version != kInfoVersion) return wrong_version("connection info", version, kInfoVersion);
  if (in.size() < kMinInfoBytes) {
    return tampered(strf("was cut off after {} bytes", in.size()));
  }
  if (in.size() > kMaxConnectionInfoBytes) {
    return tampered(strf("has {} bytes, at most {}", in.size(), kMaxConnectionInfoBytes));
  }
  const auto head = in.first<kInfoHeadBytes>();
  if (Status s = check_envelope(in, head, shared_key); !s) return s;
  if (Status s = verify_check(in, head, shared_key); !s) return s;
  ConnectionInfo info;
  if (Status s = parse_body(in, head, &info); !s) return s;
  *out = std::move(info);
  return {};
}

std::array<uint8_t, kRegionDescriptionBytes> encode_region(const RegionDescription& region) {
  std::array<uint8_t, kRegionDescriptionBytes> bytes{};
  const std::span out(bytes);
  put<0>(out, kRegionMagic);
  put<4>(out, kRegionVersion);
  put_bytes<8>(out, region.uid);
  put<24>(out, region.id);
  put<32>(out, region.length);
  put<40>(out, region.access);
  put<44>(out, region.memory);
  put<46>(out, region.device);
  put<48>(out, region.chunk_bytes);
  Digest digest;
  if (!sha256(out.first<kRegionCheckedBytes>(), &digest)) return {};
  std::copy_n(digest.begin(), kRegionCheckBytes, bytes.begin() + kRegionCheckedBytes);
  return bytes;
}

Status decode_region(std::span<const uint8_t> in, RegionDescription* out) {
  if (in.size() < 6 || get<uint32_t, 0>(in.first<4>()) != kRegionMagic) {
    return wrong_kind("region description", in);
  }
  const auto version = get<uint16_t, 4>(in.first<6>());
  if (version != kRegionVersion) {
    return wrong_version("region description", version, kRegionVersion);
  }
  const auto changed = [](std::string_view what) {
    return bad_call(TCPX_TAMPERED, strf("region description {}; export the region again", what));
  };
  if (in.size() != kRegionDescriptionBytes) {
    return changed(strf("has {} bytes, not {}", in.size(), kRegionDescriptionBytes));
  }
  const auto bytes = in.first<kRegionDescriptionBytes>();
  Digest digest;
  if (!sha256(bytes.first<kRegionCheckedBytes>(), &digest)) {
    return no_digest("region description: SHA-256");
  }
  if (!equal_constant_time(bytes.last<kRegionCheckBytes>(),
                           std::span(digest).first<kRegionCheckBytes>())) {
    return changed("was changed or damaged");
  }
  RegionDescription region;
  region.uid = get_bytes<8, kUidBytes>(bytes);
  region.id = get<uint64_t, 24>(bytes);
  region.length = get<uint64_t, 32>(bytes);
  region.access = get<uint32_t, 40>(bytes);
  region.memory = get<uint16_t, 44>(bytes);
  region.device = get<uint16_t, 46>(bytes);
  region.chunk_bytes = get<uint64_t, 48>(bytes);
  if (get<uint16_t, 6>(bytes) != 0 || !zero_at<56, 8>(bytes)) {
    return changed("has reserved bytes set");
  }
  if ((region.access & ~(TCPX_REMOTE_READ | TCPX_REMOTE_WRITE)) != 0) {
    return changed("has unknown access bits");
  }
  if (region.memory > TCPX_MEMORY_CUDA ||
      (region.memory == TCPX_MEMORY_HOST && region.device != 0)) {
    return changed("names a place that does not exist");
  }
  const bool in_bounds =
      region.memory == TCPX_MEMORY_HOST
          ? region.chunk_bytes == 0
          : region.chunk_bytes >= kMinChunkBytes && region.chunk_bytes <= kMaxChunkBytes;
  if (!in_bounds) return changed("has chunks of a size that there is not");
  *out = region;
  return {};
}

}  // namespace tcpx::wire
