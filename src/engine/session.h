// Where a session stands, from its first socket to its last. Pure: times and facts come from the
// caller. Guarded by the peer's mutex.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/steps.h"
#include "engine/lane_bits.h"
#include "path/path_refusal.h"

namespace tcpx {

struct SessionRules {
  enum class State : uint8_t {
    kConnecting,  // lanes are being made, or do not know yet how payload travels
    kUp,          // chunks and notifications are handed out
    kRefused,     // a lane has not the path that is required: it ends, unless the lane just died
    kLeaving,     // one side said goodbye: lanes that close now are not lost
    kEnding,      // lanes are being closed
    kEnded        // nothing of it touches memory, transfers and notifications have their ends
  };
  static constexpr const char* kWhat = "a session";
  using enum State;
  static constexpr std::array kStates = {
      Step{kConnecting, "connecting", {kUp, kRefused, kLeaving, kEnding}},
      Step{kUp, "up", {kRefused, kLeaving, kEnding}},
      Step{kRefused, "refused", {kConnecting, kUp, kLeaving, kEnding}},
      Step{kLeaving, "leaving", {kEnding}},
      Step{kEnding, "ending", {kEnded}},
      Step{kEnded, "ended", {}},
  };
};

// A lane that has not the path that is required, and with what the session ends for it. A peer that
// dies while a lane is set up looks like one without the path: such a refusal is in doubt.
struct LaneRefusal {
  uint32_t lane = 0;
  PathRefusal why;
  Nanos since = 0;
};

class Session {
 public:
  using State = SessionRules::State;

  State state() const { return state_.now(); }
  const char* state_name() const { return state_.name(); }
  bool connecting() const { return state_ == State::kConnecting; }
  bool up() const { return state_ == State::kUp; }
  bool leaving() const { return state_ == State::kLeaving; }
  bool was_up() const { return was_up_; }
  bool over() const { return state_ == State::kEnding || state_ == State::kEnded; }
  bool ended() const { return state_ == State::kEnded; }

  // ---- up ----
  // No further lane is to come: they are what they are.
  void lanes_are_made() { lanes_made_ = true; }
  // Comes up if that is all it waits for. Whether it did.
  bool come_up(bool lanes_settled);

  // ---- refused ----
  void refuse(LaneRefusal refusal);
  // What its refusal was in doubt about: it was the first sign of the lane's loss.
  void lane_lost(uint32_t lane);
  // The refusal that the session ends with, if it is time for that; null: none, or not yet.
  const LaneRefusal* refusal_due(Nanos now) const;
  // The same for a stream that ends now: it is the peer's answer to our word, not half of a death.
  const LaneRefusal* refusal_stands(Nanos now) const;

  // ---- leaving ----
  void leave();
  void peer_said_bye(uint32_t lane);
  bool peer_left() const { return peer_left_; }
  bool said_bye(uint32_t lane) const { return byes_.has(lane); }
  // On all of these.
  bool said_every_bye(LaneBits open) const { return peer_left_ && (open & byes_) == open; }

  // ---- the end ----
  // False: it had begun.
  bool begin_end(Status status);
  void end() { state_.step(State::kEnded); }
  const Status& end_status() const { return end_status_; }

 private:
  const LaneRefusal* refusal() const;

  Stepped<SessionRules> state_;
  bool was_up_ = false;
  bool lanes_made_ = false;
  bool peer_left_ = false;
  LaneBits byes_;
  std::vector<LaneRefusal> refusals_;
  Status end_status_;
};

}  // namespace tcpx
