#include "../recorder.h"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Recorder {
  std::mutex mutex;
  std::vector<RecordedRange> ranges;  // id - 1
  uint64_t events = 0;
};
Recorder& recorder() {
  static auto& only = *new Recorder;
  return only;
}

// What handles stand for.
template <class Handle>
Handle handle_of(const char* text) {
  return reinterpret_cast<Handle>(new std::string(text));
}
template <class Handle>
void copy_text(Handle handle, char (&out)[16]) {
  std::strncpy(out, reinterpret_cast<const std::string*>(handle)->c_str(), sizeof out - 1);
}

nvtxDomainHandle_t create_domain(const char* name) {
  return handle_of<nvtxDomainHandle_t>(name);
}

nvtxStringHandle_t register_string(nvtxDomainHandle_t, const char* text) {
  return handle_of<nvtxStringHandle_t>(text);
}

nvtxRangeId_t start_range(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* what) {
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  RecordedRange range{};
  copy_text(domain, range.domain);
  if (what->messageType == NVTX_MESSAGE_TYPE_REGISTERED)
    copy_text(what->message.registered, range.name);
  if (what->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64) range.bytes = what->payload.ullValue;
  range.begun = ++r.events;
  r.ranges.push_back(range);
  return r.ranges.size();
}

void end_range(nvtxDomainHandle_t, nvtxRangeId_t id) {
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  if (id == 0 || id > r.ranges.size() || r.ranges[id - 1].ended != 0) std::abort();
  r.ranges[id - 1].ended = ++r.events;
}

}  // namespace

extern "C" {

size_t recorded_ranges(RecordedRange* out, size_t room) {
  Recorder& r = recorder();
  std::lock_guard lock(r.mutex);
  std::copy_n(r.ranges.begin(), std::min(room, r.ranges.size()), out);
  return r.ranges.size();
}

// NVTX calls this once, and asks no more of a tool than to put its functions into the tables.
__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_export_table) {
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
    return 0;
  const auto put = [&](unsigned id, auto* function) {
    if (id < size) *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  };
  put(NVTX_CBID_CORE2_DomainCreateA, create_domain);
  put(NVTX_CBID_CORE2_DomainRegisterStringA, register_string);
  put(NVTX_CBID_CORE2_DomainRangeStartEx, start_range);
  put(NVTX_CBID_CORE2_DomainRangeEnd, end_range);
  return 1;
}
}
