#include "session/half_open.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "topo/interfaces.h"

namespace tcpx {

namespace {

// Places that a source may hold and is judged only by what it says: the lanes of one client, when
// strangers come from many addresses with one connection each.
constexpr size_t kLeastShare = 4;

// How many visitors each source has. A map of nodes took a third of the time that strangers cost.
class Shares {
 public:
  explicit Shares(std::span<const Visitor> visitors)
      : visitors_(visitors), rows_(std::bit_ceil(2 * visitors.size() + 1)) {
    for (const Visitor& visitor : visitors) {
      Row& row = row_of(visitor.source);
      if (row.places++ == 0) row.first = static_cast<uint32_t>(&visitor - visitors.data());
    }
  }
  uint32_t of(const Source& source) { return row_of(source).places; }

 private:
  struct Row {
    uint32_t first = 0;  // visitor of this source
    uint32_t places = 0;
  };
  Row& row_of(const Source& source) {
    for (size_t at = hash_of(source, 0);; ++at) {
      Row& row = rows_[at & (rows_.size() - 1)];
      if (row.places == 0 || visitors_[row.first].source == source) return row;
    }
  }

  std::span<const Visitor> visitors_;
  std::vector<Row> rows_;  // at most half full
};

}  // namespace

Source source_of(const wire::Address& address) {
  Source source = address.ip;
  if (!is_v4(address)) std::fill(source.begin() + 8, source.end(), uint8_t{0});
  return source;
}

// Of splitmix64, for each half.
uint64_t hash_of(const Source& source, uint64_t salt) {
  uint64_t halves[2];
  static_assert(sizeof halves == sizeof source);
  memcpy(halves, source.data(), sizeof halves);
  uint64_t hash = salt;
  for (uint64_t half : halves) {
    hash ^= half;
    hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ hash >> 27) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash;
}

std::vector<uint32_t> choose_leaving(std::span<const Visitor> visitors, Nanos now) {
  std::vector<uint32_t> leaving;
  bool any_may = false;
  for (const Visitor& visitor : visitors) {
    if (visitor.standing == Standing::kProved) continue;
    if (now - visitor.since >= kVisitorPatience) leaving.push_back(visitor.id);
    any_may |= now - visitor.since >= visitor_grace(visitor.standing);
  }
  if (!leaving.empty() || !any_may) return leaving;

  struct Candidate {
    uint64_t rank;  // lowest first: lanes last, then who holds much, then who is believed least
    Nanos since;
    uint32_t id;
    bool operator<(const Candidate& other) const {
      return std::pair(rank, since) < std::pair(other.rank, other.since);
    }
  };
  std::vector<Candidate> candidates;
  candidates.reserve(visitors.size());
  Shares shares(visitors);
  const size_t share = std::max(kLeastShare, visitors.size() / 16);
  for (const Visitor& v : visitors) {
    if (v.standing == Standing::kProved || now - v.since < visitor_grace(v.standing)) continue;
    const uint32_t held = shares.of(v.source);
    const uint64_t modesty = UINT32_MAX - (held > share ? held : 0);
    candidates.push_back({uint64_t{v.standing == Standing::kJoining} << 48 | modesty << 8 |
                              static_cast<uint64_t>(v.standing),
                          v.since, v.id});
  }
  const size_t count = std::min(candidates.size(), std::max<size_t>(1, visitors.size() / 16));
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                   candidates.end());
  for (size_t i = 0; i < count; ++i) leaving.push_back(candidates[i].id);
  return leaving;
}

}  // namespace tcpx
