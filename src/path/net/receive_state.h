// Where a receive of a plugin stands. A table of the ways through it is in docs/data-path.md.
#pragma once

#include <cstdint>

namespace tcpx::net {

enum class ReceiveState : uint8_t {
  kPosted,    // with the plugin
  kHere,      // done, as the plugin says; nobody has its bytes yet
  kMoving,    // the mover has a job that reads the plugin's pages
  kMoved,     // nobody needs the pages any more
  kConsumed,  // the plugin has them back
};

constexpr const char* name_of(ReceiveState state) {
  switch (state) {
    case ReceiveState::kPosted: return "posted";
    case ReceiveState::kHere: return "here";
    case ReceiveState::kMoving: return "moving";
    case ReceiveState::kMoved: return "moved";
    case ReceiveState::kConsumed: return "consumed";
  }
  return "?";
}

constexpr bool may_follow(ReceiveState from, ReceiveState to) {
  using enum ReceiveState;
  switch (from) {
    case kPosted: return to == kHere;
    // Received straight into place, or dropped: there is nothing to move.
    case kHere: return to == kMoving || to == kMoved;
    case kMoving: return to == kMoved;
    case kMoved: return to == kConsumed;
    case kConsumed: return false;
  }
  return false;
}

// False: it may not go there, and has not.
[[nodiscard]] constexpr bool advance(ReceiveState* state, ReceiveState to) {
  if (!may_follow(*state, to)) return false;
  *state = to;
  return true;
}

}  // namespace tcpx::net
