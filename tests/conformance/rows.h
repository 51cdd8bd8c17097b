// The table the suite runs over. A new path or memory kind is one more row (and, for a kind, one
// more line in support/memory.h).
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "../support/engines.h"
#include "../support/peer.h"

namespace tcpx::test {

struct Row {
  std::string name;
  std::string path;
  std::string memory;
  uint32_t lanes;
  uint64_t chunk;
  Options options;
  const char* excluded = nullptr;  // the reason why this row does not run here

  Options engine_options(const Options& more = {}) const {
    Options own = {{"lanes", std::to_string(lanes)},
                   {"chunk_bytes", std::to_string(chunk)},
                   {"require_path", path},
                   {"allow_path", path}};
    return loopback_options(merged(more, merged(options, own)));
  }
};

inline const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"tcp_host_1lane", "tcp", "host", 1, 512 << 10, {}},
      {"tcp_host_4lanes", "tcp", "host", 4, 512 << 10, {}},
      {"tcp_host_64k_chunks", "tcp", "host", 2, 64 << 10, {}},
      {"tcp_host_ipv6", "tcp", "host", 2, 512 << 10, {{"interfaces", "::1"}}},
      {"tcp_host_paced", "tcp", "host", 2, 256 << 10, {{"pacing", "on"}}},
      {"tcp_host_round_robin", "tcp", "host", 4, 256 << 10, {{"striping", "round_robin"}}},
      {"tcp_host_2threads", "tcp", "host", 3, 1 << 20, {{"io_threads", "2"}}},
  };
  return table;
}

struct Case {
  const Row* row;
  Placement placement;
};
inline std::string name_of(const Case& c) {
  return c.row->name + (c.placement == Placement::kThread ? "_thread" : "_process");
}
inline void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

// Of all rows, or of the one with this name.
inline std::vector<Case> cases(const std::string& only = {}) {
  std::vector<Case> out;
  for (const Row& row : rows())
    for (Placement placement : {Placement::kThread, Placement::kProcess})
      if (only.empty() || row.name == only) out.push_back({&row, placement});
  return out;
}

}  // namespace tcpx::test
