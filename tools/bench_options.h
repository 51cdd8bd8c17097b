// What `tcpx bench` was asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine_options.h"

namespace tcpx::tool {

inline constexpr uint16_t kDefaultPort = 20000;

struct BenchOptions {
  std::string listen;   // "[ADDR]:PORT"
  std::string connect;  // "HOST:PORT"
  bool loopback = false;
  bool one_process = false;
  bool once = false;

  std::string op_text = "write,read";
  std::string size_text;  // --size, UCCL_TCPX_PERF_SIZE or kDefaultSizes
  std::string duration_text;
  uint64_t pieces = 1;
  uint64_t iters = 0;  // 0: by time
  uint64_t rounds = 5;
  std::optional<uint64_t> warmup;
  bool verify = true;
  std::string baseline = "raw";
  std::string memory = "host";
  std::string path = "tcp";
  uint16_t raw_port = 0;
  bool json = false;
  EngineOptions engine;

  // Made of the texts by finish().
  std::vector<bool> writes;  // one per operation: WRITE, else READ
  std::vector<uint64_t> sizes;
  Nanos duration = 0;  // of our transfers of one record; 0: kDefaultDuration

  // Flags, help and defaults. `this` has to outlive the parsing.
  void add_to(CLI::App& app);
  // Reads the texts and checks what belongs together. Throws Failure.
  void finish();

 private:
  void add_place(CLI::App& app);
  void add_work(CLI::App& app);
  void add_measuring(CLI::App& app);
};

inline constexpr const char* kDefaultSizes = "4K,64K,1M,16M,64M";
inline constexpr Nanos kDefaultDuration = kSecond;

// "4K,1M" and "4K..64M" (doubling), mixed; "sweep" is 4K..256M. `label` is for errors.
std::vector<uint64_t> parse_sizes(const std::string& text, const std::string& label);
std::vector<bool> parse_ops(const std::string& text);

// "ADDR:PORT", "[V6]:PORT", ":PORT", "ADDR"
struct HostPort {
  std::string host;  // without brackets; may be empty
  uint16_t port = kDefaultPort;
  bool has_port = false;
  std::string to_string() const;
};
HostPort parse_host_port(const std::string& text);

}  // namespace tcpx::tool
