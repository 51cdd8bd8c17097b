// Is the NIXL that loads us one we can talk to?
#pragma once

#include <string>

namespace tcpx_nixl {

// `caller`: an address inside the core (a return address). "" if nothing speaks against it, else
// why not. Cores before 1.0.0 have another vtable behind the same API version; they would load this
// plugin and call the wrong functions. A core linked into a program without its symbols cannot be
// told apart and is trusted.
std::string why_core_is_too_old(const void* caller);

}  // namespace tcpx_nixl
