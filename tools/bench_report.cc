#include "bench_report.h"

#include <algorithm>
#include <cmath>

#include "print.h"

#include "base/units.h"

namespace tcpx::tool {
namespace {

const char* op_name(bool write) {
  return write ? "write" : "read";
}

// Numbers for people and plots: six significant digits are more than the noise allows.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double scale = std::pow(10, 6 - std::ceil(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

Json raw_json(const Record& record) {
  Json out = {{"loop", raw_loop_name(record.better_raw)}};
  for (RawLoop loop : {RawLoop::kBlocking, RawLoop::kSpinning}) {
    const auto& raw = record.raw[static_cast<int>(loop)];
    if (!raw) continue;
    out[raw_loop_name(loop)] = {{"gb_per_s", rounded(raw->gb_per_s)},
                                {"latency_us", rounded(raw->latency_us)},
                                {"cpu_s_per_gb", rounded(raw->cpu_s_per_gb)},
                                {"iters", raw->iters}};
  }
  return out;
}

}  // namespace

double percentile(std::vector<double>* samples, double fraction) {
  std::sort(samples->begin(), samples->end());
  const double at = fraction * static_cast<double>(samples->size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, samples->size() - 1);
  const double part = at - static_cast<double>(low);
  return (*samples)[low] * (1 - part) + (*samples)[high] * part;
}

Spread spread(std::vector<double> samples) {
  return {percentile(&samples, 0.5), percentile(&samples, 0.1), percentile(&samples, 0.9)};
}

Json Record::to_json() const {
  const auto number = [this](double value) {
    return error.empty() ? Json(rounded(value)) : Json();
  };
  const auto& best = best_raw();
  Json out = {{"op", op_name(write)},
              {"path", path},
              {"memory", memory},
              {"bytes", bytes},
              {"pieces", pieces},
              {"lanes", lanes},
              {"gb_per_s",
               {{"median", number(gb_per_s.median)},
                {"p10", number(gb_per_s.p10)},
                {"p90", number(gb_per_s.p90)}}},
              {"latency_us", {{"p50", number(latency_p50_us)}, {"p99", number(latency_p99_us)}}},
              {"raw_gb_per_s", best ? Json(rounded(best->gb_per_s)) : Json()},
              {"raw_latency_us", best ? Json(rounded(best->latency_us)) : Json()},
              {"ratio_to_raw", best ? Json(rounded(ratio_to_raw)) : Json()},
              {"cpu_s_per_gb", number(cpu_s_per_gb)},
              {"verified", verified},
              {"iters", iters},
              {"rounds", rounds},
              {"verified_iters", verified_iters},
              {"post_us", {{"p50", number(post_p50_us)}, {"max", number(post_max_us)}}},
              {"prepare_us", number(prepare_us)}};
  if (best) out["raw"] = raw_json(*this);
  if (!receipt_json.is_null()) out["receipt"] = receipt_json;
  if (!error.empty()) out["error"] = error;
  return out;
}

std::string table_header() {
  return strf(
      "{:<5} {:>6} {:>6} {:>5} | {:>7} {:>7} {:>7} | {:>9} {:>9} | {:>8} {:>9} {:<8} | {:>5} | "
      "{:>8} | {}",
      "op", "size", "pieces", "lanes", "GB/s", "p10", "p90", "p50 us", "p99 us", "raw GB/s",
      "raw us", "raw loop", "ratio", "CPU s/GB", "verified");
}

std::string table_row(const Record& record) {
  const auto& raw = record.best_raw();
  const std::string raw_text =
      raw ? strf("{:>8.3f} {:>9.1f} {:<8} | {:>5.2f}", raw->gb_per_s, raw->latency_us,
                 raw_loop_name(record.better_raw), record.ratio_to_raw)
          : strf("{:>8} {:>9} {:<8} | {:>5}", "-", "-", "-", "-");
  return strf(
      "{:<5} {:>6} {:>6} {:>5} | {:>7.3f} {:>7.3f} {:>7.3f} | {:>9.1f} {:>9.1f} | {} | {:>8.3f} | "
      "{}",
      op_name(record.write), format_size(record.bytes), record.pieces, record.lanes,
      record.gb_per_s.median, record.gb_per_s.p10, record.gb_per_s.p90, record.latency_p50_us,
      record.latency_p99_us, raw_text, record.cpu_s_per_gb, record.verified ? "yes" : "no");
}

std::string short_header() {
  return strf("{:<6} {:>6} {:>10} {:>14} {:>7} {:>15} {:>13}", "", "size", "GB/s", "raw TCP GB/s",
              "ratio", "CPU s per GB", "content");
}

std::string short_row(const Record& record) {
  const auto& raw = record.best_raw();
  return strf("{:<6} {:>6} {:>10.3f} {:>14.3f} {:>7.2f} {:>15.3f} {:>13}",
              record.write ? "WRITE" : "READ", format_size(record.bytes), record.gb_per_s.median,
              raw ? raw->gb_per_s : 0, record.ratio_to_raw, record.cpu_s_per_gb,
              record.verified ? "verified" : "not checked");
}

std::string perf_line(const Record& record) {
  return strf("[PERF] Avg: {:.3f} ms, BW: {:.2f} GB/s ({} {})", record.mean_us / 1e3,
              static_cast<double>(record.bytes) / record.mean_us * 1e6 / kGb, op_name(record.write),
              format_size(record.bytes));
}

std::string staging_line(const tcpx_receipt& r) {
  if (r.staged_out + r.staged_in == 0) return {};
  std::string out = strf("{} bytes {}, by {} copies and {} kernels", r.staged_out + r.staged_in,
                         r.staged_out > 0 ? "out" : "in", r.copies, r.kernels);
  if (r.kernels_missing > 0)
    out += strf(" ({} chunks by copies for want of a kernel)", r.kernels_missing);
  return out + strf("; of {:.1f} us waited {:.1f} for slots, {:.1f} to be submitted, moved {:.1f}",
                    r.total_us, r.slot_wait_us, r.submit_wait_us, r.staging_us);
}

std::string readable_receipt(const tcpx_receipt& r) {
  std::string out = strf("Receipt of the last {}:\n", r.op == TCPX_WRITE ? "WRITE" : "READ");
  const auto line = [&out](const char* name, const std::string& value) {
    out += strf("  {:<16} {}\n", name, value);
  };
  line("result", tcpx_code_name(r.result));
  line("path", strf("{}, interfaces {}", r.path, r.interfaces));
  line("bytes",
       strf("{} in {} piece(s), {} run(s), {} chunk(s)", r.bytes, r.pieces, r.runs, r.chunks));
  line("lanes",
       strf("{} used, {} lost, {} chunk(s) sent again", r.lanes_used, r.lanes_lost, r.retries));
  line("memory", strf("{} here, {} at the peer", r.local_memory, r.remote_memory));
  if (const std::string staged = staging_line(r); !staged.empty()) line("staged", staged);
  line("staging copies", strf("{} bytes", r.staging_copies));
  line("peer generation", strf("{:016x}", r.peer_generation));
  line("queued", strf("{:>12.1f} us  (post to first chunk out)", r.queued_us));
  line("moving", strf("{:>12.1f} us  (first chunk out to last one confirmed)", r.moving_us));
  line("notification", strf("{:>12.1f} us", r.notify_us));
  line("total", strf("{:>12.1f} us  ({:.3f} GB/s)", r.total_us,
                     r.total_us > 0 ? static_cast<double>(r.bytes) / r.total_us / 1e3 : 0));
  return out;
}

}  // namespace tcpx::tool
