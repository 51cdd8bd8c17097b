#include "config/table.h"

namespace tcpx::config {
namespace {

// name, unit, default, range, help, aliases | example | field
// clang-format off
const Row kRows[] = {
  {{"name", "text", "host:pid", "up to 63 printable characters",
    "what peers and logs call this engine", ""},
   "worker-3", Text{&EngineOptions::name, check_name}},
  {{"interfaces", "list", "auto", "auto | names, addresses or CIDRs, comma-separated",
    "network interfaces that carry lanes; auto: all with a global address",
    "UCCL_TCPX_NET_DEVICE,NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"},
   "eth1,eth2", Text{&EngineOptions::interfaces, check_interfaces}},
  {{"listen", "address", "", "IPv4 or IPv6 address",
    "address to listen on; empty: the addresses of `interfaces`", ""},
   "10.0.0.1", Text{&EngineOptions::listen, check_listen}},
  {{"port_range", "ports", "0", "0 | port | first-last",
    "ports to listen on, the first free one is taken; 0: any free port. With one of the aliases, "
    "UCCL_TCPX_PORT_RETRIES=n adds the next n ports",
    "UCCL_TCPX_BOOTSTRAP_PORT_BASE,UCCL_TCPX_OOB_PORT,UCCL_TCPX_CTRL_PORT"},
   "20000-20099", Text{&EngineOptions::port_range, check_port_range}},
  {{"advertise", "address", "", "IPv4 or IPv6 address",
    "address put into connection info instead of the listened one (behind NAT)",
    "UCCL_TCPX_CTRL_IP"},
   "10.0.0.1", Text{&EngineOptions::advertise, check_advertise}},
  {{"lanes", "count", "0", "0..64",
    "data connections per peer; 0: chosen by the number of interfaces and cores",
    "UCCL_TCPX_NUM_CHANNELS"},
   "4", Count{&EngineOptions::lanes}},
  {{"chunk_bytes", "bytes", "512K", "4K..16M",
    "most bytes a lane carries at a time, of what this engine asks for",
    "UCCL_TCPX_CHUNK_BYTES,NCCL_P2P_NET_CHUNKSIZE"},
   "512K", Size{&EngineOptions::chunk_bytes}},
  {{"window", "count", "16", "1..1024",
    "chunks in flight per lane and direction; the smaller one of both sides counts",
    "UCCL_TCPX_WINDOW_SIZE,UCCL_TCPX_MAX_SEND_INFLIGHT,UCCL_TCPX_MAX_RECV_INFLIGHT"},
   "16", Count{&EngineOptions::window}},
  {{"striping", "choice", "adaptive", "adaptive|round_robin",
    "adaptive: the next chunk goes to the lane that has credit; round_robin: to the next lane", ""},
   "adaptive", Choice{&EngineOptions::adaptive_striping}},
  {{"pacing", "switch", "off", "on|off",
    "wait for the confirmation of each chunk before sending the next one (slow; for diagnosis)",
    ""},
   "off", Choice{&EngineOptions::pacing}},
  {{"io_threads", "count", "0", "0..64",
    "progress threads of the engine; 0: chosen by the number of cores", ""},
   "2", Count{&EngineOptions::io_threads}},
  {{"spin", "time", "200us", "0..1s",
    "how long an idle progress thread spins before it sleeps", ""},
   "200us", Time{&EngineOptions::spin}},
  {{"deadline", "time", "30s", "1ms..24h",
    "of a transfer or call that names none", ""},
   "30s", Time{&EngineOptions::deadline}},
  {{"connect_timeout", "time", "10s", "1ms..1h",
    "for reaching a peer and all its lanes", ""},
   "10s", Time{&EngineOptions::connect_timeout}},
  {{"handshake_timeout", "time", "5s", "1ms..1h",
    "for a connection to prove itself, from its first byte", ""},
   "5s", Time{&EngineOptions::handshake_timeout}},
  {{"keepalive", "time", "1s", "10ms..1h",
    "silence after which a lane is pinged", ""},
   "1s", Time{&EngineOptions::keepalive}},
  {{"peer_timeout", "time", "15s", "20ms..24h",
    "silence after which a peer is given up; longer than keepalive", ""},
   "15s", Time{&EngineOptions::peer_timeout}},
  {{"lane_timeout", "time", "2s", "20ms..24h",
    "silence after which one lane is given up while others live; longer than keepalive", ""},
   "2s", Time{&EngineOptions::lane_timeout}},
  {{"auth", "switch", "on", "on|off",
    "off: anyone who can connect is a peer", ""},
   "on", Choice{&EngineOptions::auth}},
  {{"auth_key", "secret", "", "16 to 4096 bytes",
    "key shared by all engines, random; without one, connection info carries a secret. Not "
    "together with auth_key_file", ""},
   "a-long-random-text", Text{&EngineOptions::auth_key, check_key, true}},
  {{"auth_key_file", "files", "", "file name, or up to 4 with commas",
    "file that holds the key (a newline at its end is not part of it). Of several, the first is "
    "used and the others are accepted: so keys are changed without a stop", ""},
   "/etc/tcpx/key", Text{&EngineOptions::auth_key_file, check_key_files}},
  {{"max_half_open", "count", "256", "1..65536",
    "incoming connections that have not proved themselves yet; when more come, those that have stood "
    "still longest are closed", ""},
   "256", Count{&EngineOptions::max_half_open}},
  {{"max_peers", "count", "4096", "1..65536",
    "peers at a time; more are refused", ""},
   "4096", Count{&EngineOptions::max_peers}},
  {{"max_notify_bytes", "bytes", "16M", "0..1G",
    "length of a notification, sent or received; longer ones are refused", ""},
   "16M", Size{&EngineOptions::max_notify_bytes}},
  {{"inbox_bytes", "bytes", "256M", "64K..1T",
    "notifications that arrived and were not read yet, of all peers; a peer may hold as much as is "
    "still free, and is held back beyond that. At least max_notify_bytes", ""},
   "256M", Size{&EngineOptions::inbox_bytes}},
  {{"outbox_bytes", "bytes", "256M", "0..1T",
    "notifications to a peer that it has not confirmed and nobody waits for; more are refused", ""},
   "256M", Size{&EngineOptions::outbox_bytes}},
  {{"socket_buffer", "bytes", "0", "0..1G",
    "SO_SNDBUF and SO_RCVBUF of each lane, at least 32K; 0: the kernel tunes them", ""},
   "4M", Size{&EngineOptions::socket_buffer}},
  {{"require_path", "path", "", "tcp|net|ipc",
    "the path peers must be reached by; a transfer fails rather than use another", ""},
   "tcp", Text{&EngineOptions::require_path, check_require_path}},
  {{"allow_path", "list", "tcp,net", "tcp|net|ipc, comma-separated",
    "paths that may be used", ""},
   "tcp", Text{&EngineOptions::allow_path, check_allow_path}},
  {{"net_plugin", "file", "", "file name",
    "NCCL net plugin that carries payload; empty: TCPX in its usual places, if it is there",
    "UCCL_TCPX_PLUGIN_PATH"},
   "/usr/local/tcpx/lib64/libnccl-net.so", Text{&EngineOptions::net_plugin, check_key_file}},
  {{"net_devices", "list", "auto", "auto | device names, comma-separated",
    "devices of the net plugin that lanes use in turn", ""},
   "eth1,eth2", Text{&EngineOptions::net_devices, check_devices}},
  {{"net_chunk", "bytes", "512K", "4K..4M",
    "largest request to the net plugin; also its NCCL_DYNAMIC_CHUNK_SIZE, unless that is set",
    "NCCL_DYNAMIC_CHUNK_SIZE"},
   "512K", Size{&EngineOptions::net_chunk}},
  {{"net_sockets", "count", "0", "0..8",
    "sockets per thread of a comm of the net plugin (NCCL_NSOCKS_PERTHREAD, unless that is set); 0: "
    "its own default. Times net_threads at most 8", ""},
   "4", Count{&EngineOptions::net_sockets}},
  {{"net_threads", "count", "0", "0..8",
    "helper threads per comm of the net plugin (NCCL_SOCKET_NTHREADS, unless that is set); 0: its "
    "own default, 1 where net_sockets is given", ""},
   "1", Count{&EngineOptions::net_threads}},
  {{"net_min_zerocopy", "bytes", "0", "0..1G",
    "sends of host memory of this size and more go without a copy in the net plugin "
    "(NCCL_MIN_ZCOPY_SIZE, unless that is set); 0: its own default, never", ""},
   "4K", Size{&EngineOptions::net_min_zerocopy}},
  {{"net_tx_bindings", "bindings", "", "interface:first-last,first-last;interface:first-last",
    "CPUs of the threads that send for an interface, ours and (NCCL_GPUDIRECTTCPX_TX_BINDINGS, "
    "unless that is set) the net plugin's; empty: ours run anywhere",
    "NCCL_GPUDIRECTTCPX_TX_BINDINGS"},
   "eth1:8-21,112-125;eth2:22-35", Text{&EngineOptions::net_tx_bindings, check_bindings}},
  {{"net_rx_bindings", "bindings", "", "interface:first-last,first-last;interface:first-last",
    "the same for threads that receive (NCCL_GPUDIRECTTCPX_RX_BINDINGS); our threads do both and "
    "run on the CPUs of both",
    "NCCL_GPUDIRECTTCPX_RX_BINDINGS"},
   "eth1:22-35,126-139", Text{&EngineOptions::net_rx_bindings, check_bindings}},
  {{"net_send_window", "count", "12", "1..16",
    "send requests under way per comm of the net plugin", ""},
   "12", Count{&EngineOptions::net_send_window}},
  {{"net_receive_window", "count", "16", "1..16",
    "receive requests under way per comm of the net plugin", ""},
   "16", Count{&EngineOptions::net_receive_window}},
  {{"staging", "choice", "off", "host|off",
    "host: host memory passes through the engine's slots, as memory does that lanes cannot touch (a copy "
    "more on each side; for diagnosis)", ""},
   "host", Choice{&EngineOptions::stage_host}},
  {{"gpu_memory", "switch", "on", "on|off",
    "off: memory of GPUs is refused, and nothing of CUDA is touched", ""},
   "off", Choice{&EngineOptions::gpu_memory}},
  {{"gpu_staging", "bytes", "64M", "1M..4G",
    "pinned host memory per GPU through which its bytes pass, both ways together; shared by the progress threads. Where chunk_bytes is too much for it, chunks of that memory are shorter", ""},
   "64M", Size{&EngineOptions::gpu_staging}},
  {{"gpu_slot", "bytes", "0", "0..16M",
    "a piece of it, in whole pages and no larger than a chunk; 0: as large as a chunk. Larger chunks take several", ""},
   "1M", Size{&EngineOptions::gpu_slot}},
  {{"gpu_blocks", "count", "2", "1..64",
    "thread blocks of the kernels that gather and scatter many pieces; more take more of the GPU and move no more", ""},
   "4", Count{&EngineOptions::gpu_blocks}},
  {{"net_memory", "choice", "auto", "host|auto",
    "host: host memory goes to the net plugin as such even where it would be unpacked (no devmem; "
    "for diagnosis)", ""},
   "auto", Choice{&EngineOptions::net_host_memory}},
  {{"log_level", "choice", "info", "error|warn|info|debug|trace",
    "what reaches the log callback", "UCCL_TCPX_DEBUG,TCPX_DEBUG"},
   "debug", Level{&EngineOptions::log_level}},
};
// clang-format on

}  // namespace

std::span<const Row> rows() {
  return kRows;
}

const Row* find_row(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.option.name == name) return &row;
  }
  return nullptr;
}

}  // namespace tcpx::config
