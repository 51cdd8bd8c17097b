// What a peer's plugin handle may hold before our plugin sees it. A handle is the plugin's own
// affair, but plugins trust it: those known here keep a pointer in it while they connect, follow
// what they find there and free it. An honest listen() leaves those bytes zero, and the counts
// within what the plugin has room for. Pure functions.
#pragma once

#include <span>
#include <string_view>

#include "base/status.h"
#include "wire/net_setup.h"

namespace tcpx::net {

// Whether the handles of the plugin with this name are known. Those of others are passed on as they
// are: whoever holds the session's key is trusted with them.
bool knows_handles_of(std::string_view plugin);

// TCPX_PROTOCOL_ERROR names what is wrong with the handle.
Status check_handle(std::string_view plugin, const wire::NetHandle& handle);

// The plugins that are known, for tests.
std::span<const std::string_view> plugins_with_known_handles();

}  // namespace tcpx::net
