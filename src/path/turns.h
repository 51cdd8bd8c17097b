// Who may do how much in a round of a loop: an owner with 64 sources gets no more of it than one
// with a single source.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "path/tuning.h"

namespace tcpx {

class Turns {
 public:
  // So that adding that many allocates nothing.
  void reserve(size_t sources) {
    turns_.reserve(sources);
    turn_of_.reserve(sources);
  }
  void add(uint32_t source, uint64_t owner) {
    auto turn = std::find_if(turns_.begin(), turns_.end(),
                             [&](const Turn& t) { return t.sources > 0 && t.owner == owner; });
    if (turn == turns_.end()) {
      turn =
          std::find_if(turns_.begin(), turns_.end(), [](const Turn& t) { return t.sources == 0; });
      if (turn == turns_.end()) turn = turns_.emplace(turn);
      *turn = {owner, 0, 0, 0};
      ++owners_;
    }
    ++turn->sources;
    if (turn_of_.size() <= source) turn_of_.resize(source + 1);
    turn_of_[source] = static_cast<uint32_t>(turn - turns_.begin());
  }
  void remove(uint32_t source) {
    if (--turns_[turn_of_[source]].sources == 0) --owners_;
  }

  void begin_round() {
    ++round_;
    any_over_ = false;
  }
  // What the source's owner may still do in this round, in bytes of payload.
  uint64_t left(uint32_t source) const {
    const Turn& turn = turns_[turn_of_[source]];
    uint64_t whole = owners_ > 1 ? tuning::kSharedTurn : tuning::kTurn;
    uint64_t spent = turn.round == round_ ? turn.spent : 0;
    return spent < whole ? whole - spent : 0;
  }
  void spend(uint32_t source, uint64_t cost) {
    Turn& turn = turns_[turn_of_[source]];
    turn.spent = cost + (turn.round == round_ ? turn.spent : 0);
    turn.round = round_;
    any_over_ |= left(source) == 0;
  }
  // Whether anybody's is, in this round.
  bool any_over() const { return any_over_; }

 private:
  struct Turn {
    uint64_t owner = 0;
    uint32_t sources = 0;
    uint64_t round = 0;  // of `spent`
    uint64_t spent = 0;
  };
  std::vector<Turn> turns_;
  std::vector<uint32_t> turn_of_;  // by source
  size_t owners_ = 0;
  uint64_t round_ = 1;
  bool any_over_ = false;
};

}  // namespace tcpx
