// The option table: one row per option gives its environment name (TCPX_<NAME>), API and NIXL key,
// command line flag (--<name-with-dashes>), unit, default, range and help.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace tcpx {

// Sockets of a comm of the TCPX plugin: NCCL_NSOCKS_PERTHREAD x NCCL_SOCKET_NTHREADS at most.
inline constexpr uint32_t kMaxPluginSockets = 8;

// The values an engine runs with. More than 30 members: one for each option, of the same name.
struct EngineOptions {
  std::string name;                 // shown to peers and in logs; default host:pid
  std::string interfaces = "auto";  // auto | names | addresses | CIDRs, comma-separated
  std::string listen;               // address to listen on; empty: the addresses of `interfaces`
  std::string port_range = "0";     // 0: any; "20000" or "20000-20099"
  std::string advertise;            // address put into connection info instead of the listened one
  uint32_t lanes = 0;               // 0 = auto
  uint64_t chunk_bytes = 512 << 10;
  uint32_t window = 16;           // chunks in flight per lane and direction
  bool adaptive_striping = true;  // option "striping": adaptive | round_robin
  bool pacing = false;            // wait for each chunk's confirmation before the next one
  uint32_t io_threads = 0;        // 0 = auto
  Nanos spin = 200 * kMicro;      // how long an idle loop spins before it sleeps, at most
  Nanos deadline = 30 * kSecond;  // of a transfer or call that names none
  Nanos connect_timeout = 10 * kSecond;
  Nanos handshake_timeout = 5 * kSecond;
  Nanos keepalive = 1 * kSecond;      // silence after which a lane is pinged
  Nanos peer_timeout = 15 * kSecond;  // silence after which a peer is given up
  Nanos lane_timeout = 2 * kSecond;   // silence after which one lane is given up while others live
  bool auth = true;                   // off: anyone who can connect is a peer
  std::string auth_key;               // shared key, text; exclusive with auth_key_file
  std::string auth_key_file;          // files whose bytes (without trailing newline) are keys
  uint32_t max_half_open = 256;       // connections that have not proved themselves yet
  uint32_t max_peers = 4096;
  uint64_t max_notify_bytes = 16 << 20;
  uint64_t inbox_bytes = 256 << 20;    // notifications that wait for our application
  uint64_t outbox_bytes = 256 << 20;   // per peer: those that wait for its
  uint64_t socket_buffer = 0;          // SO_SNDBUF/SO_RCVBUF; 0: the kernel tunes it
  std::string require_path;            // a transfer fails rather than use another path
  std::string allow_path = "tcp,net";  // comma-separated
  std::string net_plugin;              // file of an NCCL net plugin; empty: the usual places
  std::string net_devices = "auto";    // of the plugin, by name, comma-separated
  uint64_t net_chunk = 512 << 10;      // largest request; NCCL_DYNAMIC_CHUNK_SIZE of the plugin
  uint32_t net_sockets = 0;            // per thread of a comm; 0: as its environment says
  uint32_t net_threads = 0;            // of the plugin, per comm; 0: as its environment says
  uint64_t net_min_zerocopy = 0;  // host sends of this size and more; 0: as its environment says
  std::string net_tx_bindings;    // "eth1:8-21,112-125;eth2:..." (config/bindings.h)
  std::string net_rx_bindings;
  uint32_t net_send_window = 12;  // requests under way per comm
  uint32_t net_receive_window = 16;
  bool stage_host = false;           // option "staging": host | off
  bool gpu_memory = true;            // memory of GPUs may be registered
  uint64_t gpu_staging = 64u << 20;  // pinned memory per GPU
  uint64_t gpu_slot = 0;             // 0: chunk_bytes
  uint32_t gpu_blocks = 2;           // thread blocks of a kernel
  bool net_host_memory = false;      // option "net_memory": host | auto
  tcpx_log_level log_level = TCPX_LOG_INFO;
};

struct OptionRow {
  const char* name;
  const char* unit;  // "bytes", "time", "count", "switch", "text", ...
  const char* default_text;
  const char* range;  // "64K..16M", "on|off", ... shown in help and errors
  const char* help;
  const char* aliases;  // comma-separated environment names accepted as well
};
std::span<const OptionRow> option_table();

enum class Origin { kDefault, kEnvironment, kAlias, kApi };

struct OptionValue {
  std::string name;
  std::string value;  // canonical text, e.g. "512K", "30s"
  Origin origin;
  std::string source;  // "TCPX_LANES", "UCCL_TCPX_NUM_CHANNELS", "api", "default"
};

using NameValues = std::vector<std::pair<std::string, std::string>>;

struct Config {
  EngineOptions options;
  std::vector<OptionValue> values;  // in table order, one per row
  std::string to_text() const;      // "name=value (source)\n"...
};

// First wins: explicit values, TCPX_* in `environment`, aliases, defaults. Unknown names, unknown
// TCPX_* variables and bad values are errors that name the nearest valid one. TCPX_EMU_* and
// TCPX_TEST_* belong to other programs and are passed over. `environment` is "NAME=value" strings.
Status load_config(const NameValues& explicit_values, const char* const* environment, Config* out);

// The row of that name, or nullptr.
const OptionRow* find_option(std::string_view name);
// "chunk_bytes" -> "TCPX_CHUNK_BYTES"
std::string environment_name(std::string_view option);
// The candidate with the fewest edits (insert, delete, change, swap of neighbours) to `name`; case
// and '-' for '_' cost nothing. Empty only if there are no candidates.
std::string nearest(std::string_view name, std::span<const std::string> candidates);

// Variables of the earlier project that set no engine option: "size" -> UCCL_TCPX_PERF_SIZE,
// "iters" -> UCCL_TCPX_PERF_ITERS (of `tcpx bench`). Nothing if unset, empty or no such alias. The
// value is not checked; errors about it should name the variable.
struct AliasValue {
  std::string variable;
  std::string value;
};
std::optional<AliasValue> alias_value(std::string_view name, const char* const* environment);

}  // namespace tcpx
