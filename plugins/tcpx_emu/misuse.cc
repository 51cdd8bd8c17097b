#include "misuse.h"

#include "base/mutex.h"
#include "counters.h"
#include "log.h"

namespace tcpx_emu {

namespace {
tcpx::Mutex g_mutex;
std::string& g_last TCPX_GUARDED_BY(g_mutex) = *new std::string;  // outlives every thread
}  // namespace

Result refuse(const World& world, int device, const char* rule, const std::string& plugin_says) {
  if (!world.settings.strict) {
    EMU_WARN("%s", plugin_says.c_str());
    return nccl::kInternalError;
  }
  EMU_WARN("strict: %s (%s)", rule, plugin_says.c_str());
  add(counters(device).misuses);
  tcpx::MutexLock lock(g_mutex);
  g_last = rule;
  return nccl::kInternalError;
}

std::string last_misuse() {
  tcpx::MutexLock lock(g_mutex);
  return g_last;
}

}  // namespace tcpx_emu
