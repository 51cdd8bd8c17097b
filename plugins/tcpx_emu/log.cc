#include "log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace tcpx_emu {

namespace {
std::atomic<nccl::Logger> g_logger{nullptr};
}

void set_logger(nccl::Logger logger) {
  g_logger = logger;
}

void log_line(int level, const char* where, int line, const char* format, ...) {
  nccl::Logger logger = g_logger;
  if (logger == nullptr) return;
  char text[1024];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  logger(level, nccl::kLogInit | nccl::kLogNet, where, line, "NET/TCPX_EMU : %s", text);
}

}  // namespace tcpx_emu
