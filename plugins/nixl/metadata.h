// What NIXL keeps for us beside each registered or loaded range. Values only: NIXL frees these
// objects in its own order (a self copy after the registration it was made from), so none of them
// refers to another.
#pragma once

#include <tcpx/tcpx.h>

#include "nixl_abi.h"

namespace tcpx_nixl {

// From registerMem: memory of this process.
struct LocalMD final : nixlBackendMD {
  LocalMD(tcpx_region id, uintptr_t address, size_t bytes, uint64_t device_id)
      : nixlBackendMD(true), region(id), base(address), length(bytes), device(device_id) {}
  const tcpx_region region;
  const uintptr_t base;
  const size_t length;
  const uint64_t device;  // NIXL's number for it; means nothing here
};

// From loadRemoteMD and loadLocalMD: memory as an initiator names it.
struct RemoteMD final : nixlBackendMD {
  RemoteMD(const tcpx_remote_region& description, uintptr_t address)
      : nixlBackendMD(false), region(description), base(address) {}
  const tcpx_remote_region region;
  const uintptr_t base;  // in its owner; offsets are counted from here, it never goes on the wire
};

}  // namespace tcpx_nixl
