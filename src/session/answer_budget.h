// How many refused hellos are told why. An engine with a wrong key needs to hear it, once for each
// of its keys and ways; a storm of strangers would make us speak for nothing. Who is not told is
// hung up on, and comes again if it is an engine of ours.
#pragma once

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "session/half_open.h"

namespace tcpx {

// One thread.
class AnswerBudget {
 public:
  static constexpr int64_t kBurst = 16;
  static constexpr int64_t kPerSecond = 8;
  // Sources share these, so all of them together get no more than 2048 a second, for which a core
  // spends 2 % of its time. `salt` keeps strangers from choosing whom they share with.
  static constexpr size_t kPurses = 256;

  explicit AnswerBudget(uint64_t salt) : salt_(salt) {}

  // False: no answer for this one.
  bool spend(const Source& source, Nanos now) {
    constexpr Nanos kEach = kSecond / kPerSecond;
    Nanos& paid_until = paid_until_[hash_of(source, salt_) % kPurses];
    paid_until = std::max(paid_until, now - kBurst * kEach);
    if (paid_until + kEach > now) return false;
    paid_until += kEach;
    return true;
  }

 private:
  const uint64_t salt_;
  std::array<Nanos, kPurses> paid_until_{};
};

}  // namespace tcpx
