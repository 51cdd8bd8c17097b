// Our codes as NIXL's.
#pragma once

#include <tcpx/tcpx.h>

#include "nixl_abi.h"

namespace tcpx_nixl {

// The session with the peer is over because the peer is. NIXL drops the peer's metadata, in all
// backends, when it sees the status of these codes, so no other code may map to it.
bool is_peer_lost(tcpx_code code);

nixl_status_t to_nixl(tcpx_code code);

}  // namespace tcpx_nixl
