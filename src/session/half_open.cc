#include "session/half_open.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "topo/interfaces.h"

namespace tcpx {

namespace {

// Places that a source may hold and is judged only by what it says: the lanes of one client, when
// strangers come from many addresses with one connection each.
constexpr size_t kLeastShare = 4;

}  // namespace

Source source_of(const wire::Address& address) {
  Source source = address.ip;
  if (!is_v4(address)) std::fill(source.begin() + 8, source.end(), uint8_t{0});
  return source;
}

std::vector<int> choose_leaving(std::span<const Visitor> visitors, Nanos now) {
  std::vector<int> leaving;
  std::vector<const Visitor*> candidates;
  std::map<Source, size_t> places;
  for (const Visitor& visitor : visitors) {
    ++places[visitor.source];
    if (visitor.standing == Standing::kProved) continue;
    if (now - visitor.since >= kVisitorPatience) leaving.push_back(visitor.fd);
    if (now - visitor.since >= visitor_grace(visitor.standing)) candidates.push_back(&visitor);
  }
  if (!leaving.empty() || candidates.empty()) return leaving;
  const size_t share = std::max(kLeastShare, visitors.size() / 16);
  auto rank = [&](const Visitor* v) {
    const size_t held = places[v->source];
    return std::tuple(v->standing == Standing::kJoining, SIZE_MAX - (held > share ? held : 0),
                      v->standing, v->since);
  };
  const size_t count = std::min(candidates.size(), std::max<size_t>(1, visitors.size() / 16));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count),
                    candidates.end(),
                    [&](const Visitor* a, const Visitor* b) { return rank(a) < rank(b); });
  for (size_t i = 0; i < count; ++i) leaving.push_back(candidates[i]->fd);
  return leaving;
}

}  // namespace tcpx
