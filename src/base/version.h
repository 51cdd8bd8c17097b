// The version, from the public header's numbers.
#pragma once

#include <tcpx/tcpx.h>

#define TCPX_TEXT_OF_(x) #x
#define TCPX_TEXT_OF(x) TCPX_TEXT_OF_(x)

namespace tcpx {
inline constexpr char kVersion[] = TCPX_TEXT_OF(TCPX_VERSION_MAJOR) "." TCPX_TEXT_OF(
    TCPX_VERSION_MINOR) "." TCPX_TEXT_OF(TCPX_VERSION_PATCH);
}  // namespace tcpx
