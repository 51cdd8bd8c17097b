// Mutexes that say what they guard, where the plugin is built with the project, which checks that.
// In NIXL's own tree, where there is nothing but this folder and tcpx.h, they are plain ones.
#pragma once

#if __has_include("base/mutex.h")
#include "base/mutex.h"
#else
#include <mutex>

#define TCPX_GUARDED_BY(mutex)
#define TCPX_REQUIRES(mutex)

namespace tcpx {
using Mutex = std::mutex;
using MutexLock = std::unique_lock<std::mutex>;
}  // namespace tcpx
#endif
