#include "core_check.h"

#include <dlfcn.h>

#include <memory>

namespace tcpx_nixl {

namespace {

// Functions of nixlAgent, as the core exports them.
constexpr const char* kReleaseRequest = "_ZNK9nixlAgent14releaseXferReqEP12nixlXferReqH";  // all
constexpr const char* kReleaseGpuRequest = "_ZNK9nixlAgent17releaseGpuXferReqEPv";  // 0.6 to 0.10
constexpr const char* kTelemetry =
    "_ZNK9nixlAgent16getXferTelemetryEPK12nixlXferReqHR17nixlXferTelemetry";  // from 0.6
constexpr const char* kReleaseMemView = "_ZNK9nixlAgent14releaseMemViewEPv";  // from 1.0

struct Close {
  void operator()(void* handle) const { dlclose(handle); }
};
using Library = std::unique_ptr<void, Close>;

}  // namespace

std::string why_core_is_too_old(const void* caller) {
  Dl_info where{};
  if (dladdr(caller, &where) == 0 || where.dli_fname == nullptr) return "";
  Library core(dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
  if (core == nullptr) return "";
  auto has = [&](const char* symbol) { return dlsym(core.get(), symbol) != nullptr; };
  if (!has(kReleaseRequest)) return "";
  bool before_0_6 = !has(kTelemetry) && !has(kReleaseMemView);
  if (!before_0_6 && !has(kReleaseGpuRequest)) return "";
  return std::string(where.dli_fname) + " is older than NIXL 1.0.0" +
         (before_0_6 ? " (before 0.6)" : " (0.6 to 0.10)") +
         "; its backend interface is another one. Install nixl >= 1.0.0";
}

}  // namespace tcpx_nixl
