#include "gpu/detect_place.h"

#include <iterator>

#include "base/text.h"
#include "gpu/cuda_driver.h"

namespace tcpx::gpu {

namespace {

struct Range {
  unsigned type = cu::kTypeUnknown;
  int device = -1;
  unsigned managed = 0, legacy = 0, mapped = 0;
  cu::Pointer start = 0;
  size_t size = 0;

  // One allocation, all of it there. Of mapped memory a driver may tell its own mapping, those
  // beside it as well, or all that was reserved (driver 580), wherever something is mapped there.
  bool is_one() const { return legacy != 0 || managed != 0; }
};

cu::Result range_at(const CudaDriver& driver, cu::Pointer at, Range* out) {
  cu::PointerAttribute attributes[] = {cu::kMemoryType,       cu::kDeviceOrdinal, cu::kIsManaged,
                                       cu::kLegacyIpcCapable, cu::kMapped,        cu::kRangeStart,
                                       cu::kRangeSize};
  void* values[] = {&out->type,   &out->device, &out->managed, &out->legacy,
                    &out->mapped, &out->start,  &out->size};
  return driver.pointer_get_attributes(std::size(attributes), attributes, values, at);
}

// Mappings begin and end at multiples of this.
constexpr cu::Pointer kMapping = 2 << 20;

cu::Pointer next_mapping(cu::Pointer at) {
  return (at / kMapping + 1) * kMapping;
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

// CUDA's ranges say nothing about the host's memory, and what nothing is mapped at is taken for
// that: the end is asked, too.
Status host_to_the_end(const CudaDriver& driver, cu::Pointer from, cu::Pointer end) {
  Range last;
  if (end <= next_mapping(from) || range_at(driver, end - 1, &last) != cu::kSuccess ||
      is_host(last))
    return {};
  if (last.managed != 0) return {};
  return bad_call(
      TCPX_INVALID_ARGUMENT,
      strf(
          "the memory is the host's, or nothing is mapped there, at first, and cuda:{} at its end, "
          "byte {}; register each part by itself",
          last.device, end - 1 - from));
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
    if (!is_host(range) && !range.is_one() && range.mapped == 0)
      return bad_call(
          TCPX_INVALID_ARGUMENT,
          strf("nothing is mapped from byte {} of {} of the GPU's memory on; register each "
               "part by itself",
               at - from, length));
    Place here;
    if (Status status = place_of(*driver, range, &here); !status) return status;
    if (at == from) *out = here;
    if (here != *out)
      return bad_call(TCPX_INVALID_ARGUMENT,
                      strf("the memory is {} at first, and {} from byte {} of {} on; register each "
                           "part by itself",
                           out->text(), here.text(), at - from, length));
    if (here.is_host() && range.managed == 0) return host_to_the_end(*driver, from, end);
    const cu::Pointer behind = range.start + range.size;
    at = range.is_one() && behind > at ? behind : next_mapping(at);
  }
  return {};
}

}  // namespace tcpx::gpu
