// What the two ends of a lane say to each other to set up plugin comms beside it (src/path/net).
// Each message is the payload of one kCarrier frame, of fixed size.
//
//   both:  Offer  {plugin, memory, request bytes, nonce, handle}   "this is where I receive"
//   both:  Ready  {}            my accept is done and a receive is posted: you may send
//   (both send a proof through their send comm: HMAC(session key, receiver's nonce and handle))
//   both:  Bound  {}            the proof arrived through the comm and is right
//   any:   Failed {status, text}  no comms: payload stays in the stream
//
// A lane uses its comms once it has sent and received Bound. The plugin's own sockets authenticate
// nobody; the proof ties each comm to the authenticated stream before any payload is trusted to it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "wire/handshake.h"
#include "wire/mac.h"

namespace tcpx::wire {

inline constexpr uint32_t kNetSetupMagic = 0x4e504354;  // "TCPN" in memory
inline constexpr size_t kNetHandleBytes = 128;
inline constexpr size_t kNetTextBytes = 208;
inline constexpr size_t kNetSetupBytes = 448;
inline constexpr uint64_t kMinNetRequest = 4u << 10;
inline constexpr uint64_t kMaxNetRequest = 4u << 20;

enum class NetStep : uint8_t { kOffer = 1, kReady = 2, kBound = 3, kFailed = 4 };

using NetHandle = std::array<uint8_t, kNetHandleBytes>;

struct NetSetup {
  NetStep step{};
  uint8_t version = 0;         // of the plugin's ABI, informative
  uint16_t status = 0;         // kFailed: why
  uint64_t request_bytes = 0;  // kOffer: largest request; the smaller of both is used
  Nonce nonce{};               // kOffer
  NetHandle handle{};          // kOffer: from the plugin's listen()
  std::string plugin;          // kOffer: its name; both ends must have the same
  std::string text;            // kFailed: for the log, at most kNetTextBytes - 1
  bool operator==(const NetSetup&) const = default;
};

void encode(const NetSetup& in, std::span<uint8_t, kNetSetupBytes> out);
Status decode(std::span<const uint8_t> in,
              NetSetup* out);  // any size; only kNetSetupBytes is right

// What the sender shows through its comm, and the receiver expects.
[[nodiscard]] bool net_proof(std::span<const uint8_t> session_key, uint32_t lane,
                             const NetSetup& receivers_offer, Digest* out);

}  // namespace tcpx::wire
