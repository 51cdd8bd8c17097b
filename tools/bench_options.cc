#include "bench_options.h"

#include <sstream>
#include <tuple>

#include <CLI/CLI.hpp>
#include "print.h"

#include "base/units.h"
#include "bench_memory.h"
#include "failure.h"

namespace tcpx::tool {
namespace {

constexpr uint64_t kMaxPieces = 200'000;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(part);
  return out;
}

uint64_t parse_one_size(const std::string& text, const std::string& label) {
  uint64_t bytes = 0;
  if (Status s = parse_size(text, &bytes); !s) throw Failure(kExitUsage, label + ": " + s.text());
  if (bytes == 0) throw Failure(kExitUsage, label + ": 0 bytes have no rate; e.g. 4K");
  return bytes;
}

// "4K..64M": doubles until it would pass the end.
void add_range(const std::string& text, size_t dots, const std::string& label,
               std::vector<uint64_t>* out) {
  const uint64_t low = parse_one_size(text.substr(0, dots), label);
  const uint64_t high = parse_one_size(text.substr(dots + 2), label);
  if (low > high) throw Failure(kExitUsage, strf("{}: {} is empty", label, text));
  for (uint64_t size = low;; size *= 2) {
    out->push_back(size);
    if (size > high / 2) return;
  }
}

}  // namespace

std::vector<uint64_t> parse_sizes(const std::string& text, const std::string& label) {
  std::vector<uint64_t> out;
  for (auto& part : split(text == "sweep" ? "4K..256M" : text)) {
    const size_t dots = part.find("..");
    if (dots == std::string::npos)
      out.push_back(parse_one_size(part, label));
    else
      add_range(part, dots, label, &out);
  }
  if (out.empty()) throw Failure(kExitUsage, label + ": empty; e.g. 4K,1M or 4K..64M");
  return out;
}

std::vector<bool> parse_ops(const std::string& text) {
  std::vector<bool> out;
  for (auto& part : split(text)) {
    if (part != "write" && part != "read")
      throw Failure(kExitUsage, strf("--op: '{}' is neither write nor read", part));
    out.push_back(part == "write");
  }
  if (out.empty()) throw Failure(kExitUsage, "--op: empty; e.g. write,read");
  return out;
}

std::string HostPort::to_string() const {
  return strf(fmt::runtime(host.find(':') == std::string::npos ? "{}:{}" : "[{}]:{}"), host, port);
}

HostPort parse_host_port(const std::string& text) {
  const auto bad = [&](const char* why) {
    return Failure(kExitUsage, strf("'{}' {}; e.g. 10.0.0.1:{}, [fd00::1]:{}, node7:{}", text, why,
                                    kDefaultPort, kDefaultPort, kDefaultPort));
  };
  HostPort out;
  std::string rest;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string::npos) throw bad("has no ]");
    out.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
  } else {
    const size_t colon = text.find(':');
    if (colon != text.rfind(':')) throw bad("needs brackets around its IPv6 address");
    out.host = text.substr(0, colon);
    rest = colon == std::string::npos ? "" : text.substr(colon);
  }
  if (rest.empty()) return out;
  uint64_t port = 0;
  if (rest[0] != ':' || !parse_count(rest.substr(1), &port) || port == 0 || port > 65535)
    throw bad("has no port from 1 to 65535 behind its colon");
  out.port = static_cast<uint16_t>(port);
  out.has_port = true;
  return out;
}

void BenchOptions::add_to(CLI::App& app) {
  add_place(app);
  add_work(app);
  add_measuring(app);
  engine.add_to(app, "listen");
}

void BenchOptions::add_place(CLI::App& app) {
  auto* where = app.add_option_group("Where", "one of these");
  where
      ->add_option("--listen", listen,
                   "serve clients on this address and port, one after another; without ADDR on "
                   "the addresses of --interfaces; default port 20000")
      ->type_name("[ADDR]:PORT");
  where->add_option("--connect", connect, "measure against a bench that listens there")
      ->type_name("HOST:PORT");
  where->add_flag("--loopback", loopback, "both ends on this machine, as two processes");
  where->require_option(1);
  app.add_flag("--one-process", one_process,
               "with --loopback: both ends in this process (kernels of two take turns on a GPU)")
      ->needs("--loopback");
  app.add_flag("--once", once, "with --listen: end after the first client");
  app.add_option("--raw-port", raw_port,
                 "with --listen: port for the plain connections [default any free one]")
      ->type_name("PORT");
}

void BenchOptions::add_work(CLI::App& app) {
  app.add_option("--op", op_text, "operations, in this order")
      ->type_name("LIST")
      ->capture_default_str();
  app.add_option("--size", size_text,
                 strf("total bytes of one transfer: sizes and ranges with doubling steps, "
                      "e.g. 4K,1M or 4K..64M; K, M and G are powers of two; 'sweep' is "
                      "4K..256M [default UCCL_TCPX_PERF_SIZE or {}]",
                      kDefaultSizes))
      ->type_name("SIZES");
  app.add_option("--pieces", pieces,
                 "cut each transfer into N equal pieces, scattered with gaps in a different random "
                 "order on each side, so that none can be joined")
      ->check(CLI::Range(uint64_t{1}, kMaxPieces))
      ->type_name("N")
      ->capture_default_str();
  app.add_option(
         "--memory", memory,
         "where the bytes are: host, or a GPU (cuda:N; cuda is cuda:0); of both ends, or of "
         "client and server, e.g. cuda:0,host; auto: the first GPU where there is one")
      ->type_name("KIND[,KIND]")
      ->capture_default_str();
  app.add_option("--path", path, "the path to measure; fails rather than use another one")
      ->check(CLI::IsMember({"tcp", "net"}))
      ->capture_default_str();
}

void BenchOptions::add_measuring(CLI::App& app) {
  app.add_option("--iters", iters,
                 "timed transfers per operation and size [default UCCL_TCPX_PERF_ITERS, or as many "
                 "as fit in --duration, at least one per round]")
      ->check(CLI::Range(uint64_t{1}, uint64_t{10'000'000}))
      ->type_name("N");
  app.add_option("--duration", duration_text,
                 "time for our transfers per operation and size, raw has as much for each loop; "
                 "e.g. 500ms, 5s [default 1s]")
      ->type_name("TIME");
  app.add_option("--rounds", rounds,
                 "ours and raw take turns so many times; rates are medians over rounds")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1000}))
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--warmup", warmup, "untimed transfers first [default: about 50 ms of them]")
      ->type_name("N");
  app.add_flag("--verify,!--no-verify", verify,
               "check every byte of the first transfer and of the last one of every round, outside "
               "the timed part; the pattern changes each time [default on]");
  app.add_option("--baseline", baseline,
                 "raw: the same bytes over as many plain TCP connections, the better of a blocking "
                 "and a spinning loop")
      ->check(CLI::IsMember({"raw", "none"}))
      ->capture_default_str();
  app.add_flag("--json", json, "one JSON document on stdout instead of the table");
}

void BenchOptions::finish() {
  std::string size_label = "--size";
  if (size_text.empty()) {
    size_text = kDefaultSizes;
    if (const auto alias = bench_alias("size")) std::tie(size_label, size_text) = *alias;
  }
  if (iters == 0 && duration_text.empty()) {
    if (const auto alias = bench_alias("iters")) {
      if (Status s = parse_count(alias->second, &iters); !s)
        throw Failure(kExitUsage, alias->first + ": " + s.text());
    }
  }
  for (auto& where : {listen, connect}) (void)parse_host_port(where);
  if (!connect.empty() && parse_host_port(connect).host.empty())
    throw Failure(kExitUsage, strf("--connect: '{}' has no host", connect));
  sizes = parse_sizes(size_text, size_label);
  writes = parse_ops(op_text);
  if (!duration_text.empty()) {
    if (Status s = parse_time(duration_text, &duration); !s)
      throw Failure(kExitUsage, "--duration: " + s.text());
  }
  if (once && listen.empty()) throw Failure(kExitUsage, "--once goes with --listen");
  if (iters > 0 && duration > 0)
    throw Failure(kExitUsage, "--iters and --duration: give one of them");
  if (memory != "auto") (void)parse_memory_kinds(memory);
  if (!engine.given("require_path")) engine.set("require_path", path);
}

}  // namespace tcpx::tool
