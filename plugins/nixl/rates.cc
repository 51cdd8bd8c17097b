#include "rates.h"

#include <algorithm>
#include <cmath>

namespace tcpx_nixl {

namespace {

constexpr uint64_t kSmall = 32 << 10;  // below, latency is all there is to see
constexpr double kWeight = 0.2;        // of the newest measurement

// Moves a value and its relative error towards what was seen.
void learn(double seen, double* value, double* error, bool* known) {
  if (!*known) {
    *value = seen;
    *error = 0.5;
    *known = true;
    return;
  }
  double off = std::abs(seen - *value) / std::max(seen, *value);
  *error += kWeight * (off - *error);
  *value += kWeight * (seen - *value);
}

}  // namespace

void Rates::add(uint64_t bytes, double took_us) {
  if (!(took_us > 0)) return;
  tcpx::MutexLock lock(mu_);
  if (bytes < kSmall) return learn(took_us, &latency_us_, &latency_error_, &latency_known_);
  double latency = latency_known_ ? std::min(latency_us_, took_us / 2) : 0;
  learn((took_us - latency) / static_cast<double>(bytes), &us_per_byte_, &rate_error_,
        &rate_known_);
}

Rates::Estimate Rates::estimate(uint64_t bytes) const {
  tcpx::MutexLock lock(mu_);
  double moving = static_cast<double>(bytes) * us_per_byte_;
  return {latency_us_ + moving, latency_us_ * latency_error_ + moving * rate_error_};
}

}  // namespace tcpx_nixl
