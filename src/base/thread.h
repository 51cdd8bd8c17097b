// Threads are not always to be had.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/caught.h"
#include "base/text.h"

namespace tcpx {

// Starts `f`, which lets nothing out. TCPX_LIMIT: there may be no more threads. `what` names it.
template <class F>
Status start_thread(std::thread* out, const char* what, F&& f) noexcept {
  try {
    *out = std::thread(std::forward<F>(f));
    return {};
  } catch (const std::system_error& error) {
    Status status(TCPX_LIMIT, TCPX_BLAST_NOTHING, "no more threads");  // needs no memory
    quietly([&] {
      status = Status(
          TCPX_LIMIT, TCPX_BLAST_NOTHING,
          strf("cannot start {}: {}; the process, its user or its container has as many threads "
               "as it may (ulimit -u, pids.max of the cgroup, kernel.threads-max)",
               what, error.code().message()));
    });
    return status;
  } catch (...) {
    return caught(TCPX_BLAST_NOTHING);
  }
}

}  // namespace tcpx
