// connect(): the caller polls with a handle in its own buffer, and that buffer is where we note
// which attempt is its. The attempts themselves are kept here, so one that nobody polls any more is
// found and ended.
#pragma once

#include "abi.h"
#include "send_comm.h"
#include "setup.h"
#include "world.h"

namespace tcpx_emu {

// *out stays null until the connection is there. Changes *handle.
Result poll_connect(const WorldPtr& world, int device, Handle* handle, SendComm** out);

}  // namespace tcpx_emu
