// Whether to say that GPU memory can be registered. NIXL asks once, when the backend is made, and
// never offers it later; an application may load CUDA only after that.
#pragma once

namespace tcpx_nixl {

// This process has a CUDA driver loaded, or it was given a GPU and may load one. Neither loads nor
// starts anything: a process that does not use CUDA never gets it from us.
bool gpu_may_be_used();

}  // namespace tcpx_nixl
