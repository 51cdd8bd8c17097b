// A path is a way for payload between two engines: a row in the table (path/paths.h) and a folder.
// All of them stand on a lane's stream, a connected and authenticated socket, which carries heads
// and answers, and the payload too where nothing better carries it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/log.h"
#include "config/options.h"
#include "path/lane.h"
#include "path/lane_traits.h"
#include "wire/handshake.h"

namespace tcpx {

struct StreamSettings {
  wire::Limits limits;
  std::string interface;
  std::string remote;
  uint64_t socket_buffer = 0;
  bool same_host = false;
};

// What a lane is made of, whatever its path.
struct LaneParts {
  Fd fd;  // connected, authenticated, non-blocking
  StreamSettings stream;
  uint32_t index = 0;                    // of the lane in its session
  std::span<const uint8_t> session_key;  // while the lane is made
};

// What is known of the other end before anything is offered to it.
struct PathPeer {
  bool same_host = false;  // its address is one of ours
};

// A path that this engine has.
class Path {
 public:
  virtual ~Path() = default;
  virtual LaneTraits traits() const = 0;
  // Whether such a peer is told, in hello and welcome, that it may take the path.
  virtual bool offer(const PathPeer& peer) const = 0;
  // On the lane's own thread, if it has one: what may hang is for Lane::start(), or later.
  virtual std::unique_ptr<Lane> make_lane(LaneParts parts, Loop& loop, LaneSink& sink) const = 0;
  // A line for the log; "": nothing is worth saying.
  virtual std::string describe() const { return {}; }
};

struct PathProbe {
  std::unique_ptr<Path> path;  // null: it cannot run here
  Status why;                  // not
  // Then the others will do; or somebody should know; or it was asked for in a way that is not
  // answered with another path.
  enum class IfNot : uint8_t { kGoOn, kWarn, kFail } if_not = IfNot::kGoOn;
};

struct PathRow {
  const char* name;  // in options, receipts and log lines
  wire::PathMask bit;
  // Can it run here? Once, when the engine starts, if it is allowed.
  PathProbe (*probe)(const EngineOptions& options, const Log& log);
};

}  // namespace tcpx
