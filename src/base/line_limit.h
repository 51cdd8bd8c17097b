// So many log lines a minute about things strangers can cause; what was left out is counted.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/log.h"

namespace tcpx {

// One thread.
class LineLimit {
 public:
  explicit LineLimit(const char* what, uint64_t lines_per_minute = 20)
      : what_(what), lines_per_minute_(lines_per_minute) {}

  bool allow(Nanos now, const Log& log) {
    if (began_ == 0 || now - began_ > kMinute) {
      if (left_out_ > 0) log.warn("{} more {} in the last minutes", left_out_, what_);
      began_ = now;
      lines_ = left_out_ = 0;
    }
    if (lines_ < lines_per_minute_) {
      ++lines_;
      return true;
    }
    ++left_out_;
    return false;
  }

 private:
  static constexpr Nanos kMinute = 60 * kSecond;

  const char* what_;
  const uint64_t lines_per_minute_;
  Nanos began_ = 0;
  uint64_t lines_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace tcpx
