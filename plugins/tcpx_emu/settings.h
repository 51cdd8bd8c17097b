// What the environment says. Read at every init(); a comm keeps what was read before it was made.
#pragma once

#include <cstdint>
#include <string>

namespace tcpx_emu {

inline constexpr int kMaxSockets = 8;

enum class Fragments { kPage, kMtu, kRandom, kMixed };
enum class DeviceChoice { kAuto, kHost, kCuda };

struct Settings {
  // The plugin's own variables.
  std::string interfaces;           // NCCL_GPUDIRECTTCPX_SOCKET_IFNAME
  std::string control_interface;    // NCCL_GPUDIRECTTCPX_CTRL_DEV
  int64_t sockets_per_thread = 1;   // NCCL_NSOCKS_PERTHREAD
  int64_t threads = 1;              // NCCL_SOCKET_NTHREADS
  int64_t chunk_bytes = 0;          // NCCL_DYNAMIC_CHUNK_SIZE; 0: nothing is ever sent
  int64_t steering_wait_us = 1000;  // NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS
  int64_t connection_tries = 3;     // NCCL_GPUDIRECTTCPX_CONNECTION_RETRY
  bool recv_sync = false;           // NCCL_GPUDIRECTTCPX_RECV_SYNC
  bool spinwait_connect = false;    // NCCL_GPUDIRECTTCPX_SPINWAIT_CONNECT, set and not 0
  bool enabled = true;              // NCCL_GPUDIRECTTCPX_SOCKET_ENABLE
  bool dma_buf = true;              // NCCL_USE_DMA_BUF

  // The emulator's, TCPX_EMU_*.
  bool strict = true;
  bool init_once = false;
  bool may_exit = false;  // EXIT: where the plugin exits the process, do so
  bool close_race = false;
  bool shuffle = false;
  bool send_done_acked = false;
  bool handle_pointer = false;  // HANDLE: connect()'s state is a pointer in the handle
  bool test_cpu = false;
  bool unpack = true;  // TYPE
  Fragments fragments = Fragments::kPage;
  DeviceChoice device = DeviceChoice::kAuto;
  int64_t seed = 1;
  int64_t devices = 0;  // 0: the interfaces there are
  int64_t pool_mb = 64;
  int64_t setup_timeout_ms = 20000;
  int64_t socket_delay_us = 0;
  std::string faults;
  std::string counters_file;

  int sockets() const;  // data sockets per comm
};

// "" or what is wrong with which variable. Values of the plugin's own variables that are out of
// range are replaced by the default, as the plugin does.
std::string read_settings(Settings* out);

}  // namespace tcpx_emu
