#include "base/ranges.h"

#include <iterator>
#include <mutex>
#include <utility>

#if defined(TCPX_HAVE_NVTX)
#include <nvtx3/nvToolsExt.h>
#endif

namespace tcpx {

#if defined(TCPX_HAVE_NVTX)

namespace {

constexpr const char* kNames[] = {"copy out", "gather", "copy in", "scatter", "send", "receive"};
static_assert(std::size(kNames) == static_cast<size_t>(RangeName::kReceive) + 1);

// Of the tool; before is_seen.
nvtxDomainHandle_t g_domain = nullptr;
nvtxStringHandle_t g_names[std::size(kNames)] = {};

}  // namespace

void attach_profiler() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_domain = nvtxDomainCreateA("tcpx");  // null: there is no tool
    if (g_domain == nullptr) return;
    for (size_t i = 0; i < std::size(kNames); ++i)
      g_names[i] = nvtxDomainRegisterStringA(g_domain, kNames[i]);
    ProfiledRange::is_seen.store(true, std::memory_order_release);
  });
}

void ProfiledRange::start(RangeName name, uint64_t bytes) {
  nvtxEventAttributes_t what{};
  what.version = NVTX_VERSION;
  what.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  what.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  what.payload.ullValue = bytes;
  what.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  what.message.registered = g_names[static_cast<size_t>(name)];
  id_ = nvtxDomainRangeStartEx(g_domain, &what);
}

void ProfiledRange::stop() {
  nvtxDomainRangeEnd(g_domain, std::exchange(id_, 0));
}

#else

void attach_profiler() {}
void ProfiledRange::start(RangeName, uint64_t) {}
void ProfiledRange::stop() {}

#endif

}  // namespace tcpx
