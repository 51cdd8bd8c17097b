// Where memory lies, as the CUDA driver knows it.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "memory/place.h"

namespace tcpx::gpu {

// All of [base, base + length) has to lie in one place: the range is walked, since memory of CUDA's
// VMM (expandable segments) is made of many allocations, and one that is not mapped would fault the
// context for good when it is touched. TCPX_INVALID_ARGUMENT says where it does not;
// TCPX_UNSUPPORTED: managed memory that host and GPU may not touch at once.
Status detect_place(const void* base, uint64_t length, Place* out);

}  // namespace tcpx::gpu
