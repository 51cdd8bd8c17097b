// What NIXL keeps for us beside each registered or loaded range. Values only: NIXL frees these
// objects in its own order (a self copy after the registration it was made from), so none of them
// refers to another.
#pragma once

#include <tcpx/tcpx.h>

#include "nixl_abi.h"
#include "ranges.h"

namespace tcpx_nixl {

// From registerMem: memory of this process.
struct LocalMD final : nixlBackendMD {
  LocalMD(tcpx_region id, const Range& memory, uint64_t device_id)
      : nixlBackendMD(true), region(id), range(memory), device(device_id) {}
  const tcpx_region region;
  const Range range;
  const uint64_t device;  // NIXL's number for it; of host memory it means nothing here
};

// From loadRemoteMD and loadLocalMD: memory as an initiator names it.
struct RemoteMD final : nixlBackendMD {
  RemoteMD(const tcpx_remote_region& description, uintptr_t address)
      : nixlBackendMD(false), region(description), base(address) {}
  const tcpx_remote_region region;
  const uintptr_t base;  // in its owner; offsets are counted from here, it never goes on the wire
};

}  // namespace tcpx_nixl
