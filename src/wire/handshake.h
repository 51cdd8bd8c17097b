// The handshake of one socket, before any frame. Fixed sizes both ways, so nothing is allocated
// for a stranger. Client = who connects.
//
//   client                                 server
//   Hello   {versions, kind, session,
//            lane, uid, nonce, knock}  ->
//                                      <-  Challenge {status, version, uid, nonce, proof}
//   Proof   {proof}                    ->
//                                      <-  Welcome {status, session, lanes, limits, addresses, mac}
//
// proof = HMAC-SHA256(key, role | hello | challenge without proof); the key of a session's first
// socket is derived from the secret, that of a joining lane from the session (src/session/auth.h),
// so a lane cannot be moved to another session and nothing can be replayed (both nonces are fresh).
// The knock is a MAC over the hello under the same key, cut short: it proves nothing (it can be
// said again), but who has no key is not answered and costs the server next to nothing. The Welcome
// is signed with the session's key, so that nobody in between can send the further lanes elsewhere
// or change what was agreed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace tcpx::wire {

inline constexpr uint32_t kHelloMagic = 0x48504354;      // "TCPH" in memory
inline constexpr uint32_t kChallengeMagic = 0x43504354;  // "TCPC"
inline constexpr uint32_t kProofMagic = 0x50504354;      // "TCPP"
inline constexpr uint32_t kWelcomeMagic = 0x57504354;    // "TCPW"
inline constexpr uint16_t kWireVersion = 4;
inline constexpr uint16_t kOldestWireVersion = 4;  // 3 had no knock
inline constexpr size_t kNonceBytes = 32;
inline constexpr size_t kProofBytes = 32;
inline constexpr size_t kKnockBytes =
    8;  // one guess in 2^64 gets as far as a hello that is replayed
inline constexpr size_t kUidBytes = 16;
inline constexpr size_t kNameBytes = 64;
inline constexpr uint32_t kMaxLanes = 64;
inline constexpr uint32_t kMaxWindow = 1024;
inline constexpr size_t kMaxAddresses = 16;

using Uid = std::array<uint8_t, kUidBytes>;
using Nonce = std::array<uint8_t, kNonceBytes>;
using ProofBytes = std::array<uint8_t, kProofBytes>;
using Knock = std::array<uint8_t, kKnockBytes>;

// A bit per path. Unknown ones are ignored: they are of later versions.
using PathMask = uint16_t;
inline constexpr PathMask kTcpPath = 1;
inline constexpr PathMask kNetPath = 2;
inline constexpr PathMask kIpcPath = 4;

struct VersionRange {
  uint16_t oldest = kOldestWireVersion;
  uint16_t newest = kWireVersion;
  bool operator==(const VersionRange&) const = default;
};
// The newest version that both speak; 0: there is none.
constexpr uint16_t common_version(VersionRange a, VersionRange b) {
  const uint16_t newest = a.newest < b.newest ? a.newest : b.newest;
  return newest >= a.oldest && newest >= b.oldest ? newest : uint16_t{0};
}

enum class HelloKind : uint8_t { kNewSession = 1, kJoinLane = 2 };

// An IPv4 or IPv6 address with port; IPv4 is stored as v4-mapped IPv6.
struct Address {
  std::array<uint8_t, 16> ip{};
  uint16_t port = 0;
  uint8_t prefix_length = 0;  // of its network, in the v6-mapped form (0: unknown)
  bool operator==(const Address&) const = default;
};

// Hello and Challenge keep size, magic and versions in their places in every wire version, so that
// engines of different versions can tell each other which they speak.
struct Hello {
  VersionRange versions;  // that the client speaks; the server picks
  HelloKind kind = HelloKind::kNewSession;
  bool authenticated = true;  // false: client runs with auth=off
  uint32_t lane = 0;          // index of this socket in the session
  uint64_t session = 0;       // kJoinLane: which session
  Uid uid{};                  // client engine
  Uid target_uid{};           // engine the client means to reach; zero: whoever answers
  Nonce nonce{};
  uint32_t lanes = 1;  // kNewSession: lanes the client wants
  // Largest chunk the client handles, kMinChunkBytes..kMaxChunkBytes (frame.h); 0 only in a join.
  uint64_t chunk_bytes = 0;
  uint32_t window = 0;        // chunks in flight per lane the client takes; 0: as the server says
  PathMask paths = kTcpPath;  // ways the payload of this lane may go
  uint64_t epoch = 0;         // of the client's regions (frame.h); 0 in a join
  uint64_t key_id = 0;        // which of the server's keys the client holds; 0: not said
  std::string name;           // at most kNameBytes - 1
  Knock knock{};              // over all before it; zero with auth=off
  bool operator==(const Hello&) const = default;
};

struct Challenge {
  uint16_t status = 0;              // tcpx_code; not OK: the server closes after this
  uint16_t version = kWireVersion;  // of this socket; the server's newest if there is none for both
  bool authenticated = true;        // false: server runs with auth=off
  Uid uid{};                        // server engine
  Nonce nonce{};
  ProofBytes proof{};  // the server proves itself first
  bool operator==(const Challenge&) const = default;
};

struct Proof {
  ProofBytes proof{};
  bool operator==(const Proof&) const = default;
};

// With status OK all values are those of the session, also in the answer to a joining lane.
struct Welcome {
  uint16_t status = 0;
  uint64_t session = 0;
  uint32_t lanes = 1;              // how many lanes the session will have
  uint64_t chunk_bytes = 0;        // largest chunk the server sends; all accept kMaxChunkBytes
  uint32_t window = 0;             // chunks in flight per lane (the smaller of both)
  PathMask paths = kTcpPath;       // of the client's, those that the server has too
  uint64_t epoch = 0;              // of the server's regions (frame.h)
  std::string name;                // server's, at most kNameBytes - 1
  std::vector<Address> addresses;  // where further lanes may connect, at most kMaxAddresses
  ProofBytes mac{};                // over all before it, with the session's key; zero if open
  bool operator==(const Welcome&) const = default;
};

inline constexpr size_t kHelloBytes = 192;
inline constexpr size_t kChallengeBytes = 96;
inline constexpr size_t kProofMessageBytes = 40;
inline constexpr size_t kWelcomeBytes = 480;
inline constexpr size_t kAddressBytes = 20;
// The part of a Hello that its knock covers: everything before it.
inline constexpr size_t kKnockedBytes = kHelloBytes - kKnockBytes;
// The part of a Challenge that proofs cover: everything before its own proof, which comes last.
inline constexpr size_t kChallengeSignedBytes = kChallengeBytes - kProofBytes;
// The same of a Welcome and its MAC.
inline constexpr size_t kWelcomeSignedBytes = kWelcomeBytes - kProofBytes;

// Total: too long a name is cut, addresses beyond kMaxAddresses are left out.
void encode(const Hello& in, std::span<uint8_t, kHelloBytes> out);
void encode(const Challenge& in, std::span<uint8_t, kChallengeBytes> out);
void encode(const Proof& in, std::span<uint8_t, kProofMessageBytes> out);
void encode(const Welcome& in, std::span<uint8_t, kWelcomeBytes> out);
void encode(const Address& in, std::span<uint8_t, kAddressBytes> out);

// Total functions; names are cut at their first NUL and need no terminator. Versions of which none
// is in kOldestWireVersion..kWireVersion are TCPX_VERSION_MISMATCH, all else TCPX_PROTOCOL_ERROR;
// the blast is TCPX_BLAST_LANE (this socket). *out is written only on success.
Status decode(std::span<const uint8_t, kHelloBytes> in, Hello* out);
Status decode(std::span<const uint8_t, kChallengeBytes> in, Challenge* out);
Status decode(std::span<const uint8_t, kProofMessageBytes> in, Proof* out);
Status decode(std::span<const uint8_t, kWelcomeBytes> in, Welcome* out);
Status decode(std::span<const uint8_t, kAddressBytes> in, Address* out);

}  // namespace tcpx::wire
