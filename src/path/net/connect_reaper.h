// A connect that nobody waits for any more. The ABI has no way to call one back: the plugin goes on
// with it, keeps its state in the caller's handle buffer, and frees it only when it is asked again
// after the end. So somebody has to ask.
#pragma once

#include <memory>

#include "path/net/plugin.h"
#include "wire/net_setup.h"

namespace tcpx::net {

// Keeps polling in the background until the connect has ended, then closes its comm; for a minute
// at most, and not beyond the exit of the process. `handle` is the very buffer the connect was
// begun with.
// Without memory or a thread for that, it is left to the plugin, or until the next one.
void reap_connect(std::shared_ptr<Plugin> plugin, int device,
                  std::unique_ptr<wire::NetHandle> handle) noexcept;

// After a plugin's init: handlers run in reverse, so ours before what the plugin has registered.
void stop_reaping_at_exit();

}  // namespace tcpx::net
