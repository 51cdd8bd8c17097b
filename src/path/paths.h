// The table of paths, and those of them that an engine has.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "path/path.h"

namespace tcpx {

// Best first: a lane goes by the first one that both ends have.
std::span<const PathRow> path_table();

// By which paths peers may be reached: require_path and allow_path.
class PathWish {
 public:
  PathWish() = default;  // any
  PathWish(std::string text, wire::PathMask accepted)
      : text_(std::move(text)), accepted_(accepted) {}
  static PathWish of(std::span<const PathRow> table, const EngineOptions& options);

  bool accepts(wire::PathMask path) const { return (accepted_ & path) != 0; }
  // Whether a lane may go on without what was to carry its payload.
  bool accepts_stream() const { return accepts(wire::kTcpPath); }
  const std::string& text() const { return text_; }  // for errors: "require_path is net"

 private:
  std::string text_;
  wire::PathMask accepted_ = static_cast<wire::PathMask>(~0u);
};

class Paths {
 public:
  explicit Paths(std::span<const PathRow> table = path_table()) : table_(table) {}

  // Probes what the wish accepts. Not ok: there is none, or one that was asked for is missing.
  Status open(const EngineOptions& options, const PathWish& wish, const Log& log);

  // What such a peer is told.
  wire::PathMask offer(const PathPeer& peer) const;
  // The best of these; null: none of them is here.
  const Path* choose(wire::PathMask paths) const;
  // Of lanes that go by the paths of these names ("net+tcp"): why not all by a better one, as the
  // end of a log line, or "". `fallback`: why those that were to go by a better one do not, or "".
  std::string why_not_better(std::string_view names, const std::string& fallback) const;

 private:
  struct Mine {
    const PathRow* row;
    std::unique_ptr<Path> path;
    std::string why_not;
  };
  std::span<const PathRow> table_;
  std::vector<Mine> mine_;  // as in the table
};

}  // namespace tcpx
