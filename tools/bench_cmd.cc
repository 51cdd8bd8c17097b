// `tcpx bench` and `tcpx demo`: what is printed where.
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>

#include <CLI/CLI.hpp>
#include "print.h"

#include "base/units.h"
#include "bench_run.h"
#include "commands.h"
#include "signals.h"

namespace tcpx::tool {
namespace {

// One line on a terminal's stderr that is written over again and again.
class Progress {
 public:
  void show(const std::string& text) {
    if (!terminal_) return;
    print(stderr, "\r\033[K{}", text);
    std::fflush(stderr);
    shown_ = true;
  }
  void clear() {
    if (shown_) print(stderr, "\r\033[K");
    shown_ = false;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  bool shown_ = false;
};

// Rows appear as they are measured; the title and the header with the first one.
BenchHooks table_hooks(Progress& progress, std::function<std::string()> head,
                       std::string (*row)(const Record&)) {
  auto started = std::make_shared<bool>(false);
  BenchHooks hooks;
  hooks.progress = [&progress](const std::string& text) { progress.show(text); };
  hooks.record = [&progress, started, head, row](const Record& record) {
    progress.clear();
    if (!*started) print(stdout, "{}\n", head());
    *started = true;
    print(stdout, "{}\n", row(record));
    std::fflush(stdout);
  };
  return hooks;
}

int report_error(const ClientRun& run) {
  if (run.code != kExitOk) print(stderr, "tcpx: {}\n", run.error);
  return run.code;
}

std::string where_of(const BenchOptions& options) {
  if (!options.loopback) return "to " + options.connect;
  return options.one_process ? "both ends in one process" : "two processes on this machine";
}

std::string bench_title(const BenchOptions& options) {
  const auto resolved = options.engine.resolve();
  const auto value = [&](const char* name) { return find_option(resolved, name).value; };
  return strf(
      "tcpx bench, {}: memory {}, path {}, chunk_bytes {}, window {}, port_range {}, size {}; "
      "GB = 10^9 bytes, K/M/G = powers of two",
      where_of(options), options.memory, options.path, value("chunk_bytes"), value("window"),
      value("port_range"), options.size_text);
}

int run_bench_command(BenchOptions& options) {
  options.finish();
  handle_signals();
  if (!options.listen.empty()) return run_listener(options);
  Progress progress;
  BenchHooks hooks = table_hooks(
      progress, [&options] { return bench_title(options) + "\n" + table_header(); }, table_row);
  if (options.json) hooks.record = nullptr;
  const ClientRun run = run_client(options, hooks);
  progress.clear();
  if (options.json) {
    print(stdout, "{}\n", bench_document(options, run).dump(2));
  } else {
    for (auto& record : run.result.records) {
      if (!record.error.empty()) continue;
      print(stdout, "{}\n", perf_line(record));
      const std::string staged = staging_line(record.receipt);
      if (!staged.empty()) print(stdout, "[STAGED] the last one: {}\n", staged);
    }
  }
  std::fflush(stdout);
  return report_error(run);
}

int run_demo_command(BenchOptions& options) {
  options.loopback = true;
  options.finish();
  handle_signals();
  Progress progress;
  const auto head = [&options] {
    return strf(
        "Two processes on this machine, authenticated to each other, move {} each way over "
        "loopback\n"
        "TCP, memory {}. Every byte of the first transfer and of the last one of every round is\n"
        "checked. GB = 10^9 bytes; raw TCP = as many plain connections between host memory,\n"
        "alternating in the same run.\n\n{}",
        options.size_text, options.memory, short_header());
  };
  const ClientRun run = run_client(options, table_hooks(progress, head, short_row));
  progress.clear();
  if (run.code == kExitOk && !run.result.records.empty())
    print(stdout, "\n{}", readable_receipt(run.result.records.back().receipt));
  std::fflush(stdout);
  return report_error(run);
}

}  // namespace

Command add_bench(CLI::App& app) {
  auto* bench = app.add_subcommand("bench", "measure transfers against plain TCP in the same run");
  auto options = std::make_shared<BenchOptions>();
  options->add_to(*bench);
  return {bench, [options] { return run_bench_command(*options); }};
}

Command add_demo(CLI::App& app) {
  auto* demo = app.add_subcommand("demo", "1 GiB each way between two processes on this machine");
  auto options = std::make_shared<BenchOptions>();
  options->size_text = "1G";
  options->rounds = 3;
  options->memory = "auto";
  demo->add_option("--size", options->size_text, "bytes of one transfer")->capture_default_str();
  demo->add_option("--memory", options->memory,
                   "as for bench; auto: the first GPU, if there is one")
      ->type_name("KIND[,KIND]")
      ->capture_default_str();
  options->engine.add_to(*demo);
  return {demo, [options] { return run_demo_command(*options); }};
}

}  // namespace tcpx::tool
