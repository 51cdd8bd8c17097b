#include "wire/handshake.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "wire/bytes.h"
#include "wire/frame.h"
#include "wire/protocol_error.h"

// Hello, 192 bytes                        Challenge, 96 bytes
//   offset size field                       offset size field
//        0    4 magic "TCPH"                     0    4 magic "TCPC"
//        4    2 newest version                   4    2 version
//        6    1 kind                             6    2 status
//        7    1 flags, bit 0 authenticated       8    1 flags, bit 0 authenticated
//        8    4 lane                             9    7 reserved, zero
//       12    4 lanes                           16   16 uid
//       16    8 session                         32   32 nonce
//       24    8 chunk_bytes                     64   32 proof
//       32   16 uid
//       48   16 target_uid                  Proof, 40 bytes
//       64   32 nonce                         offset size field
//       96   64 name                               0    4 magic "TCPP"
//      160    4 window                             4    4 reserved, zero
//      164    2 oldest version                     8   32 proof
//      166    2 paths
//      168    8 epoch
//      176    8 key_id
//      184    8 knock
//
// Welcome, 480 bytes                      Address, 20 bytes
//   offset size field                       offset size field
//        0    4 magic "TCPW"                     0   16 ip, network order
//        4    2 status                          16    2 port
//        6    2 address count                   18    1 prefix_length
//        8    4 lanes                           19    1 reserved, zero
//       12    4 window
//       16    8 session
//       24    8 chunk_bytes
//       32   64 name
//       96  320 addresses, 16 x 20, unused ones zero
//      416    2 paths
//      418    6 reserved, zero
//      424    8 epoch
//      432   16 reserved, zero
//      448   32 mac

namespace tcpx::wire {
namespace {

constexpr uint8_t kAuthenticatedFlag = 1;
constexpr uint16_t kFirstWithARange = 4;  // hellos before it named one version

// Magic and version come first, so that an engine of another version gets that answer and not one
// about a field which means something else there.
Status check_versions(const char* message, VersionRange peer) {
  if (common_version(peer, {}) != 0) return {};
  return lane_error(TCPX_VERSION_MISMATCH,
                    strf("{}: the peer speaks wire version {}, this engine {} to {}; update "
                         "the older of the two",
                         message,
                         peer.oldest < peer.newest ? strf("{} to {}", peer.oldest, peer.newest)
                                                   : strf("{}", peer.newest),
                         kOldestWireVersion, kWireVersion));
}

Status check_magic(const char* message, uint32_t magic, uint32_t expected) {
  if (magic == expected) return {};
  return bad("{} expected, but the other side does not speak this protocol (magic {:#010x})",
             message, magic);
}

void put_name(std::string_view name, std::span<uint8_t, kNameBytes> out) {
  const size_t length = std::min(name.size(), kNameBytes - 1);
  std::copy_n(name.begin(), length, out.begin());
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(length), out.end(), uint8_t{0});
}

std::string get_name(std::span<const uint8_t, kNameBytes> in) {
  const auto text = in.first<kNameBytes - 1>();
  return std::string(text.begin(), std::find(text.begin(), text.end(), uint8_t{0}));
}

// What bounds memory and work on our side, so also in a message that carries a refusal.
Status check_upper_bounds(const char* message, uint32_t lanes, uint64_t chunk_bytes,
                          uint32_t window) {
  if (lanes > kMaxLanes) return bad("{}: lanes is {}, at most {}", message, lanes, kMaxLanes);
  if (chunk_bytes > kMaxChunkBytes) {
    return bad("{}: chunk_bytes is {}, at most {}", message, chunk_bytes, kMaxChunkBytes);
  }
  if (window > kMaxWindow) return bad("{}: window is {}, at most {}", message, window, kMaxWindow);
  return {};
}

Status check_hello(const Hello& hello) {
  if (Status s = check_upper_bounds("hello", hello.lanes, hello.chunk_bytes, hello.window); !s) {
    return s;
  }
  if (hello.lanes < 1) return bad("hello: lanes is 0");
  if (hello.lane >= kMaxLanes) {
    return bad("hello: lane is {}, at most {}", hello.lane, kMaxLanes - 1);
  }
  if (hello.kind == HelloKind::kJoinLane) {
    if (hello.session == 0) return bad("hello: joins no session");
    return {};
  }
  if (hello.session != 0) return bad("hello: a new session has no number yet");
  if (hello.lane != 0) return bad("hello: a new session starts with lane 0, not {}", hello.lane);
  if (hello.chunk_bytes < kMinChunkBytes) {
    return bad("hello: chunk_bytes is {}, at least {}", hello.chunk_bytes, kMinChunkBytes);
  }
  return {};
}

Status check_welcome(const Welcome& welcome) {
  if (Status s = check_upper_bounds("welcome", welcome.lanes, welcome.chunk_bytes, welcome.window);
      !s) {
    return s;
  }
  if (!is_result(welcome.status)) return bad("welcome: status {} is no result", welcome.status);
  if (welcome.status != TCPX_OK) return {};
  if (welcome.session == 0) return bad("welcome: session is 0");
  if (welcome.lanes < 1) return bad("welcome: lanes is 0");
  if (welcome.window < 1) return bad("welcome: window is 0");
  if (welcome.chunk_bytes < kMinChunkBytes) {
    return bad("welcome: chunk_bytes is {}, at least {}", welcome.chunk_bytes, kMinChunkBytes);
  }
  return {};
}

}  // namespace

void encode(const Hello& in, std::span<uint8_t, kHelloBytes> out) {
  std::fill(out.begin(), out.end(), uint8_t{0});
  put<0>(out, kHelloMagic);
  put<4>(out, in.versions.newest);
  put<6>(out, static_cast<uint8_t>(in.kind));
  put<7>(out, in.authenticated ? kAuthenticatedFlag : uint8_t{0});
  put<8>(out, in.lane);
  put<12>(out, in.lanes);
  put<16>(out, in.session);
  put<24>(out, in.chunk_bytes);
  put_bytes<32>(out, in.uid);
  put_bytes<48>(out, in.target_uid);
  put_bytes<64>(out, in.nonce);
  put_name(in.name, out.subspan<96, kNameBytes>());
  put<160>(out, in.window);
  put<164>(out, in.versions.oldest);
  put<166>(out, in.paths);
  put<168>(out, in.epoch);
  put<176>(out, in.key_id);
  static_assert(kKnockedBytes == 184);
  put_bytes<184>(out, in.knock);
}

Status decode(std::span<const uint8_t, kHelloBytes> in, Hello* out) {
  if (Status s = check_magic("hello", get<uint32_t, 0>(in), kHelloMagic); !s) return s;
  Hello hello;
  hello.versions.newest = get<uint16_t, 4>(in);
  hello.versions.oldest =
      hello.versions.newest < kFirstWithARange ? hello.versions.newest : get<uint16_t, 164>(in);
  if (Status s = check_versions("hello", hello.versions); !s) return s;
  const auto kind = get<uint8_t, 6>(in);
  const auto flags = get<uint8_t, 7>(in);
  if (kind != static_cast<uint8_t>(HelloKind::kNewSession) &&
      kind != static_cast<uint8_t>(HelloKind::kJoinLane)) {
    return bad("hello: kind {} is unknown", kind);
  }
  // A client that speaks a later version too may say more than we understand.
  if ((flags & ~kAuthenticatedFlag) != 0 && hello.versions.newest <= kWireVersion)
    return bad("hello: flags {:#04x} are unknown", flags);
  hello.kind = static_cast<HelloKind>(kind);
  hello.authenticated = (flags & kAuthenticatedFlag) != 0;
  hello.lane = get<uint32_t, 8>(in);
  hello.lanes = get<uint32_t, 12>(in);
  hello.session = get<uint64_t, 16>(in);
  hello.chunk_bytes = get<uint64_t, 24>(in);
  hello.uid = get_bytes<32, kUidBytes>(in);
  hello.target_uid = get_bytes<48, kUidBytes>(in);
  hello.nonce = get_bytes<64, kNonceBytes>(in);
  hello.name = get_name(in.subspan<96, kNameBytes>());
  hello.window = get<uint32_t, 160>(in);
  hello.epoch = get<uint64_t, 168>(in);
  hello.paths = get<PathMask, 166>(in);
  hello.key_id = get<uint64_t, 176>(in);
  hello.knock = get_bytes<184, kKnockBytes>(in);
  if (Status s = check_hello(hello); !s) return s;
  *out = std::move(hello);
  return {};
}

void encode(const Challenge& in, std::span<uint8_t, kChallengeBytes> out) {
  std::fill(out.begin(), out.end(), uint8_t{0});
  put<0>(out, kChallengeMagic);
  put<4>(out, in.version);
  put<6>(out, in.status);
  put<8>(out, in.authenticated ? kAuthenticatedFlag : uint8_t{0});
  put_bytes<16>(out, in.uid);
  put_bytes<32>(out, in.nonce);
  static_assert(kChallengeSignedBytes == 64);  // what proofs cover ends where the proof starts
  put_bytes<64>(out, in.proof);
}

Status decode(std::span<const uint8_t, kChallengeBytes> in, Challenge* out) {
  if (Status s = check_magic("challenge", get<uint32_t, 0>(in), kChallengeMagic); !s) return s;
  Challenge challenge;
  challenge.version = get<uint16_t, 4>(in);
  if (Status s = check_versions("challenge", {challenge.version, challenge.version}); !s) return s;
  challenge.status = get<uint16_t, 6>(in);
  const auto flags = get<uint8_t, 8>(in);
  if (!is_result(challenge.status)) {
    return bad("challenge: status {} is no result", challenge.status);
  }
  if ((flags & ~kAuthenticatedFlag) != 0) return bad("challenge: flags {:#04x} are unknown", flags);
  if (!zero_at<9, 7>(in)) return bad("challenge: reserved bytes are set");
  challenge.authenticated = (flags & kAuthenticatedFlag) != 0;
  challenge.uid = get_bytes<16, kUidBytes>(in);
  challenge.nonce = get_bytes<32, kNonceBytes>(in);
  challenge.proof = get_bytes<64, kProofBytes>(in);
  *out = challenge;
  return {};
}

void encode(const Proof& in, std::span<uint8_t, kProofMessageBytes> out) {
  put<0>(out, kProofMagic);
  put<4>(out, uint32_t{0});
  put_bytes<8>(out, in.proof);
}

Status decode(std::span<const uint8_t, kProofMessageBytes> in, Proof* out) {
  if (Status s = check_magic("proof", get<uint32_t, 0>(in), kProofMagic); !s) return s;
  if (get<uint32_t, 4>(in) != 0) return bad("proof: reserved bytes are set");
  out->proof = get_bytes<8, kProofBytes>(in);
  return {};
}

void encode(const Welcome& in, std::span<uint8_t, kWelcomeBytes> out) {
  static_assert(96 + kMaxAddresses * kAddressBytes == 416);
  const size_t count = std::min(in.addresses.size(), kMaxAddresses);
  std::fill(out.begin(), out.end(), uint8_t{0});
  put<0>(out, kWelcomeMagic);
  put<4>(out, in.status);
  put<6>(out, static_cast<uint16_t>(count));
  put<8>(out, in.lanes);
  put<12>(out, in.window);
  put<16>(out, in.session);
  put<24>(out, in.chunk_bytes);
  put<416>(out, in.paths);
  put<424>(out, in.epoch);
  static_assert(kWelcomeSignedBytes == 448);
  put_bytes<448>(out, in.mac);
  put_name(in.name, out.subspan<32, kNameBytes>());
  for (size_t i = 0; i < count; ++i) {
    encode(in.addresses[i], out.subspan(96 + i * kAddressBytes).first<kAddressBytes>());
  }
}

Status decode(std::span<const uint8_t, kWelcomeBytes> in, Welcome* out) {
  if (Status s = check_magic("welcome", get<uint32_t, 0>(in), kWelcomeMagic); !s) return s;
  Welcome welcome;
  welcome.status = get<uint16_t, 4>(in);
  const auto count = get<uint16_t, 6>(in);
  welcome.lanes = get<uint32_t, 8>(in);
  welcome.window = get<uint32_t, 12>(in);
  welcome.session = get<uint64_t, 16>(in);
  welcome.chunk_bytes = get<uint64_t, 24>(in);
  welcome.name = get_name(in.subspan<32, kNameBytes>());
  if (Status s = check_welcome(welcome); !s) return s;
  if (count > kMaxAddresses) return bad("welcome: {} addresses, at most {}", count, kMaxAddresses);
  const size_t used = 96 + count * kAddressBytes;
  if (!all_zero(in.subspan(used, 416 - used)) || !zero_at<418, 6>(in) || !zero_at<432, 16>(in)) {
    return bad("welcome: reserved bytes are set");
  }
  welcome.paths = get<PathMask, 416>(in);
  welcome.epoch = get<uint64_t, 424>(in);
  welcome.mac = get_bytes<448, kProofBytes>(in);
  welcome.addresses.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bytes = in.subspan(96 + i * kAddressBytes).first<kAddressBytes>();
    if (Status s = decode(bytes, &welcome.addresses[i]); !s) return s;
  }
  *out = std::move(welcome);
  return {};
}

void encode(const Address& in, std::span<uint8_t, kAddressBytes> out) {
  put_bytes<0>(out, in.ip);
  put<16>(out, in.port);
  put<18>(out, in.prefix_length);
  put<19>(out, uint8_t{0});
}

Status decode(std::span<const uint8_t, kAddressBytes> in, Address* out) {
  Address address;
  address.ip = get_bytes<0, 16>(in);
  address.port = get<uint16_t, 16>(in);
  address.prefix_length = get<uint8_t, 18>(in);
  if (address.port == 0) return bad("address: port is 0");
  if (address.prefix_length > 128) {
    return bad("address: prefix_length is {}, at most 128", address.prefix_length);
  }
  if (get<uint8_t, 19>(in) != 0) return bad("address: reserved byte is set");
  *out = address;
  return {};
}

}  // namespace tcpx::wire
