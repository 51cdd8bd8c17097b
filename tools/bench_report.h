// Results of the bench: statistics, the table, the JSON document, a readable receipt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api.h"
#include "base/clock.h"
#include "raw_tcp.h"

namespace tcpx::tool {

inline constexpr int kSchema = 1;
inline constexpr double kGb = 1e9;

// Value at a fraction of the sorted samples, interpolated. Sorts `samples`; they are not empty.
double percentile(std::vector<double>* samples, double fraction);

struct Spread {
  double median = 0, p10 = 0, p90 = 0;
};
Spread spread(std::vector<double> samples);

struct RawResult {
  double gb_per_s = 0;
  double latency_us = 0;
  double cpu_s_per_gb = 0;
  uint64_t iters = 0;
};

struct Record {
  bool write = true;
  std::string path = "tcp";
  std::string memory = "host";
  uint64_t bytes = 0;
  uint64_t pieces = 1;
  uint32_t lanes = 0;
  Spread gb_per_s;
  double latency_p50_us = 0, latency_p99_us = 0;
  double post_p50_us = 0, post_max_us = 0;
  double mean_us = 0;
  double prepare_us = 0;
  double cpu_s_per_gb = 0;
  bool verified = false;
  uint64_t iters = 0, rounds = 0, verified_iters = 0;
  std::optional<RawResult> raw[2];  // by RawLoop
  RawLoop better_raw = RawLoop::kBlocking;
  double ratio_to_raw = 0;
  tcpx_receipt receipt{};  // of the last transfer
  Json receipt_json;
  std::string error;  // why there are no numbers

  const std::optional<RawResult>& best_raw() const { return raw[static_cast<int>(better_raw)]; }
  Json to_json() const;
};

std::string table_header();
std::string table_row(const Record& record);
std::string short_header();  // for `demo`
std::string short_row(const Record& record);
std::string perf_line(const Record& record);  // "[PERF] Avg: 8.100 ms, BW: 8.28 GB/s ..."
// What passed through slots in the last transfer, and what that waited for; "": nothing did.
std::string staging_line(const tcpx_receipt& receipt);
std::string readable_receipt(const tcpx_receipt& receipt);

}  // namespace tcpx::tool
