// What transfers with one peer took, for estimates: time = latency + bytes / rate.
#pragma once

#include <atomic>
#include <cstdint>

#include "guarded.h"

namespace tcpx_nixl {

class Rates {
 public:
  struct Estimate {
    double duration_us;
    double margin_us;
  };
  // A receipt costs more than a few of the smallest transfers can spare: some are enough.
  bool wants_another() const {
    uint64_t seen = seen_.fetch_add(1, std::memory_order_relaxed);
    return seen < kFirst || seen % kEvery == 0;
  }
  void add(uint64_t bytes, double took_us);
  Estimate estimate(uint64_t bytes) const;

 private:
  static constexpr uint64_t kFirst = 16;
  static constexpr uint64_t kEvery = 16;

  mutable std::atomic<uint64_t> seen_{0};
  mutable tcpx::Mutex mu_;
  // Until something was measured: an ordinary data centre network, with everything as margin.
  double latency_us_ TCPX_GUARDED_BY(mu_) = 100;
  double us_per_byte_ TCPX_GUARDED_BY(mu_) = 1e-3;
  double latency_error_ TCPX_GUARDED_BY(mu_) = 1;  // relative
  double rate_error_ TCPX_GUARDED_BY(mu_) = 1;
  bool latency_known_ TCPX_GUARDED_BY(mu_) = false;
  bool rate_known_ TCPX_GUARDED_BY(mu_) = false;
};

}  // namespace tcpx_nixl
