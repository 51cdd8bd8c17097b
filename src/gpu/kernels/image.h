// The kernels as text that a driver compiles, null where they were not built.
#pragma once

namespace tcpx::gpu {

const char* kernel_image();

}  // namespace tcpx::gpu
