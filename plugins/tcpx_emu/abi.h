// The plugin ABI under a short name.
#pragma once

#include "path/net/nccl_net_abi.h"

namespace tcpx_emu {
namespace nccl = tcpx::nccl;
using nccl::Result;
}  // namespace tcpx_emu
