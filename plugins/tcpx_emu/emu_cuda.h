// The only place that knows CUDA: the driver, found at run time. Nothing links to it.
#pragma once

#include <string>

#include "device.h"

namespace tcpx_emu {

// Whether the driver is there and has a GPU; if not, why.
bool cuda_available(std::string* why_not);

// The GPU of the calling thread's context, or the first GPU. Null when CUDA fails.
Device* cuda_current_device();

}  // namespace tcpx_emu
