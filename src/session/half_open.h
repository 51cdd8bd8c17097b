// Incoming connections that have not proved themselves yet: who has to leave when all places are
// taken. Turning newcomers away would let strangers that say nothing hold all of them for ever.
// Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "wire/handshake.h"

namespace tcpx {

// How much a connection has shown of itself, in the order of belief.
enum class Standing : uint8_t {
  kSilent,     // nothing
  kSpoke,      // less than a hello
  kSaidHello,  // with a knock, which whoever saw one can repeat; anybody with auth=off
  kJoining,    // the same with the key of a session
  kProved      // never has to leave
};

// Whom a share of the places belongs to: an IPv4 address, an IPv6 network of 64 bits.
using Source = std::array<uint8_t, 16>;
Source source_of(const wire::Address& address);
uint64_t hash_of(const Source& source, uint64_t salt);

struct Visitor {
  uint32_t id = 0;  // the caller's
  Source source{};
  Standing standing = Standing::kSilent;
  Nanos since = 0;  // its last step forward
};

// So long after its last step nobody has to leave. A hello comes right behind the connection, a
// proof within a round trip, which inside a region takes less than 2 ms; a lane belongs to somebody
// who is known. Longer ones would turn newcomers away: 256 places are filled in 6 ms by the 40,000
// strangers a second that one core can send.
constexpr Nanos visitor_grace(Standing standing) {
  switch (standing) {
    case Standing::kSilent:
    case Standing::kSpoke: return 2 * kMilli;
    case Standing::kSaidHello: return 5 * kMilli;
    default: return 20 * kMilli;
  }
}
// Without pressure a visitor has handshake_timeout; with it, this.
inline constexpr Nanos kVisitorPatience = 1 * kSecond;

// The ids of those that leave; none if all are too new or proved: then the newcomer is turned away.
// All who have stood still for kVisitorPatience go. If nobody has, a sixteenth goes (so that a
// large table is not searched for every newcomer): of sources with more than a sixteenth of the
// places first, those with most in front; then the ones of lowest standing, of these the oldest.
std::vector<uint32_t> choose_leaving(std::span<const Visitor> visitors, Nanos now);

}  // namespace tcpx
