// The passive side of transfers: processes with an engine and memory, which do with its content
// what they are told over a socket.
#pragma once

#include <sys/types.h>

#include <tcpx/tcpx.hpp>

#include "gpu_neighbours/buffers.h"
#include "gpu_neighbours/settings.h"

namespace tcpx::bench {

// As the client and every server have one.
Engine make_engine(const Settings& settings);

// One of them, as the client sees it. It says unasked, in this order: its connection info, its
// region of host memory, and that of GPU memory if it was started with CUDA.
struct Server {
  pid_t pid = -1;
  int fd = -1;
  tcpx_remote_region region[2] = {};  // host, cuda
  tcpx_peer peer = 0;

  Bytes connection_info() const;  // the next that it says, and so is a region
  void learn_region(bool cuda);
  void load_cuda();  // there, and learns that region
  // Where a byte is wrong, or -1.
  int64_t obey(const Task& task) const;
};

// Forks: to be called before this process has threads, or CUDA.
Server start_server(const Settings& settings, bool cuda);

}  // namespace tcpx::bench
