// The active side of the bench: asks the server for what it needs and measures ours against raw.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench_control.h"
#include "bench_options.h"
#include "bench_report.h"

namespace tcpx::tool {

// The server's own addresses for the raw connections do not always lead to it; this one does.
struct RawRoute {
  bool v6 = false;
  std::string host;  // empty: only what the server says
};

struct BenchHooks {
  std::function<void(const Record&)> record;         // as soon as it is complete
  std::function<void(const std::string&)> progress;  // one short line
};

struct BenchResult {
  Json peer;  // describe_host() of the server
  std::vector<std::string> raw_endpoints;
  std::vector<Record> records;
};

// Measures every operation and size. On a failure the records made so far are in `out`. The last
// one tells how verification failed, if it did.
void run_bench(const BenchOptions& options, Engine& engine, Control& control, const RawRoute& route,
               const BenchHooks& hooks, BenchResult* out);

}  // namespace tcpx::tool
