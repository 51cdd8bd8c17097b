// What is thrown and nobody expected. The library throws nothing itself, so that is std::bad_alloc,
// or something of a callback: where it is caught, at the root of a thread or of a call, it becomes
// a Status, and ends what it happened to.
#pragma once

#include "base/status.h"

namespace tcpx {

// In a catch (...): TCPX_NO_MEMORY or TCPX_INTERNAL. Allocates nothing where memory is out.
Status caught(tcpx_blast blast) noexcept;

// For ends, which have to go on: what f throws is dropped. Whether it threw nothing.
template <class F>
bool quietly(F&& f) noexcept {
  try {
    f();
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace tcpx
