// Running a bench from its options: engines, connection, who is on the other side.
#pragma once

#include <string>
#include <vector>

#include "bench_client.h"
#include "bench_options.h"
#include "failure.h"

namespace tcpx::tool {

struct ClientRun {
  BenchResult result;
  std::vector<ResolvedOption> resolved;  // what the client's engine runs with
  std::string interfaces;
  ExitCode code = kExitOk;
  std::string error;  // of a run that failed
};

// `started` is told the connection's lanes and path before the first record. Errors that belong
// to the run are in the result; errors in the options are thrown.
ClientRun run_client(BenchOptions& options, const BenchHooks& hooks);

// --listen. Returns the exit code.
int run_listener(BenchOptions& options);

// The one document of --json.
Json bench_document(const BenchOptions& options, const ClientRun& run);

}  // namespace tcpx::tool
