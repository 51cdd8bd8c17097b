// The passive side of the bench: holds memory, fills and checks it when asked, takes part in raw.
#pragma once

#include <cstdint>

#include "bench_control.h"

namespace tcpx::tool {

// Serves the client behind `control` until it says goodbye or is gone (then throws Failure).
void serve_client(Engine& engine, Control& control, uint16_t raw_port);

// What both sides tell about themselves: versions, host, cores, kernel.
Json describe_host();

// Throws Failure if this machine has no room for so many more bytes.
void check_room(uint64_t bytes);

// TCPX_TEST_CORRUPT=1 damages received data before it is checked, to show that the check can fail.
bool corruption_wanted();

// Transfers in progress plus chunks on their way, of this engine.
uint64_t live_transfers(const Engine& engine);

}  // namespace tcpx::tool
