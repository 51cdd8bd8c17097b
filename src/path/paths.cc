#include "path/paths.h"

#include "base/text.h"
#include "path/net/net_path.h"
#include "path/tcp/tcp_path.h"

namespace tcpx {

namespace {

constexpr PathRow kTable[] = {
    {"net", wire::kNetPath, net::NetPath::probe},
    {"tcp", wire::kTcpPath, TcpPath::probe},
};

bool lists(std::string_view list, std::string_view name, char separator) {
  return strf("{0}{1}{0}", separator, list).find(strf("{0}{1}{0}", separator, name)) !=
         std::string::npos;
}

}  // namespace

std::span<const PathRow> path_table() {
  return kTable;
}

PathWish PathWish::of(std::span<const PathRow> table, const EngineOptions& options) {
  const bool required = !options.require_path.empty();
  const std::string& names = required ? options.require_path : options.allow_path;
  wire::PathMask accepted = 0;
  for (const PathRow& row : table)
    if (lists(names, row.name, ',')) accepted |= row.bit;
  return {strf("{} is {}", required ? "require_path" : "allow_path", names), accepted};
}

Status Paths::open(const EngineOptions& options, const PathWish& wish, const Log& log) {
  Status first;
  bool any = false;
  for (const PathRow& row : table_) {
    Mine mine{&row, nullptr, "it is not allowed (allow_path)"};
    if (wish.accepts(row.bit)) {
      PathProbe probe = row.probe(options, log);
      if (probe.path == nullptr) {
        if (probe.if_not == PathProbe::IfNot::kFail) return probe.why;
        if (probe.if_not == PathProbe::IfNot::kWarn)
          log.warn("no {} path: {}", row.name, probe.why.text());
        if (first.ok()) first = probe.why;
        mine.why_not = probe.why.text();
      } else if (std::string line = probe.path->describe(); !line.empty()) {
        log.info("{}", line);
      }
      any |= probe.path != nullptr;
      mine.path = std::move(probe.path);
    }
    mine_.push_back(std::move(mine));
  }
  if (any || !first.ok()) return any ? Status() : first;
  std::vector<std::string> names;
  for (const PathRow& row : table_) names.push_back(row.name);
  return Status(TCPX_PATH_UNAVAILABLE, TCPX_BLAST_ENGINE,
                strf("{}, but the paths of this build are {}", wish.text(), join(names, ", ")));
}

wire::PathMask Paths::offer(const PathPeer& peer) const {
  wire::PathMask out = 0;
  for (const Mine& mine : mine_)
    if (mine.path != nullptr && mine.path->offer(peer)) out |= mine.row->bit;
  return out;
}

const Path* Paths::choose(wire::PathMask paths) const {
  for (const Mine& mine : mine_)
    if (mine.path != nullptr && (paths & mine.row->bit) != 0) return mine.path.get();
  return nullptr;
}

std::string Paths::why_not_better(std::string_view names, const std::string& fallback) const {
  std::string out, said;  // up to the worst of them
  for (const Mine& mine : mine_) {
    if (lists(names, mine.row->name, '+')) out = said;
    const std::string why = mine.path == nullptr ? mine.why_not
                            : fallback.empty()   ? std::string("the peer has none")
                                                 : fallback;
    said += strf("; no {} path: {}", mine.row->name, why);
  }
  return out;
}

}  // namespace tcpx
