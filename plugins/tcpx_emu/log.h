// Lines to the logger that init() was given. printf style, since that is what the logger takes.
#pragma once

#include "abi.h"

namespace tcpx_emu {

void set_logger(nccl::Logger logger);

[[gnu::format(printf, 4, 5)]] void log_line(int level, const char* where, int line,
                                            const char* format, ...);

}  // namespace tcpx_emu

#define EMU_WARN(...) \
  ::tcpx_emu::log_line(::tcpx_emu::nccl::kLogWarn, __func__, __LINE__, __VA_ARGS__)
#define EMU_INFO(...) \
  ::tcpx_emu::log_line(::tcpx_emu::nccl::kLogInfo, __func__, __LINE__, __VA_ARGS__)
