#include "gpu/detect_place.h"

#include <algorithm>

#include "base/text.h"
#include "gpu/cuda_driver.h"

namespace tcpx::gpu {

namespace {

struct Range {
  unsigned type = cu::kTypeUnknown;
  int device = -1;
  unsigned managed = 0;
  cu::Pointer start = 0;
  size_t size = 0;
};

cu::Result range_at(const CudaDriver& driver, cu::Pointer at, Range* out) {
  cu::PointerAttribute attributes[] = {cu::kMemoryType, cu::kDeviceOrdinal, cu::kIsManaged,
                                       cu::kRangeStart, cu::kRangeSize};
  void* values[] = {&out->type, &out->device, &out->managed, &out->start, &out->size};
  return driver.pointer_get_attributes(std::size(attributes), attributes, values, at);
}

// Mappings side by side may be told as one range: then other GPUs' may be among them, and each
// begins at a multiple of this.
constexpr cu::Pointer kMapping = 2 << 20;

cu::Pointer next_mapping(cu::Pointer at) {
  return (at / kMapping + 1) * kMapping;
}

bool ends_as_it_begins(const CudaDriver& driver, const Range& range, cu::Pointer end) {
  Range last;
  return range_at(driver, end - 1, &last) == cu::kSuccess && last.type == range.type &&
         last.device == range.device && last.managed == range.managed;
}

// Memory that CUDA does not know is the host's, and so is what it has pinned.
bool is_host(const Range& range) {
  return range.type != cu::kTypeDevice;
}

Status place_of(const CudaDriver& driver, const Range& range, Place* out) {
  *out = {};
  if (is_host(range)) return {};
  if (range.managed == 0) {
    *out = {Place::Kind::kCuda, static_cast<uint16_t>(range.device)};
    return {};
  }
  int concurrent = 0;
  (void)driver.device_get_attribute(&concurrent, cu::kConcurrentManagedAccess, range.device);
  if (concurrent != 0) return {};  // pages come to the host when it touches them
  return bad_call(TCPX_UNSUPPORTED,
                  strf("managed memory of cuda:{}, which host and GPU may not touch at once there; "
                       "use cudaMalloc or host memory",
                       range.device));
}

}  // namespace

Status detect_place(const void* base, uint64_t length, Place* out) {
  *out = {};
  const CudaDriver* driver = loaded_cuda_driver();
  if (driver == nullptr || length == 0) return {};
  const auto from = reinterpret_cast<cu::Pointer>(base);
  if (length > UINT64_MAX - from) return {};  // the region table says what is wrong with it
  const cu::Pointer end = from + length;
  for (cu::Pointer at = from; at < end;) {
    Range range;
    cu::Result result = range_at(*driver, at, &range);
    if (result == cu::kNotInitialized) return {};  // nobody has used it: it has no memory
    if (result != cu::kSuccess)
      return bad_call(TCPX_UNSUPPORTED,
                      strf("cannot tell whose memory {} is: {}", base, driver->text_of(result)));
    Place here;
    if (Status status = place_of(*driver, range, &here); !status) return status;
    if (at == from) *out = here;
    if (here != *out)
      return bad_call(TCPX_INVALID_ARGUMENT,
                      strf("the memory is {} at first, and {} from byte {} of {} on; register each "
                           "part by itself",
                           out->text(), here.text(), at - from, length));
    if (here.is_host() && !range.managed) return {};  // CUDA's ranges say nothing about it
    const cu::Pointer next = range.start + range.size;
    if (next <= at) return {};  // it does not say how far it goes
    at = ends_as_it_begins(*driver, range, std::min(next, end)) ? next : next_mapping(at);
  }
  return {};
}

}  // namespace tcpx::gpu
