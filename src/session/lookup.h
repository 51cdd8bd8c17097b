// A host name looked up beside the caller. The system's resolver cannot be interrupted and may take
// minutes, so it runs on a thread of its own that owns all it touches: who has no time left lets go
// of the result and waits for nothing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "base/status.h"
#include "wire/handshake.h"

namespace tcpx {

class Lookup {
 public:
  // So many may be under way in this process; more is TCPX_LIMIT, as is a thread that cannot be
  // started.
  static constexpr int kMost = 16;

  // `wake` is an eventfd that is written to at the end.
  static Status start(const std::string& host, uint16_t port, Fd wake,
                      std::shared_ptr<Lookup>* out);

  const std::string& host() const { return host_; }
  // False: still under way. Then *status says how it went; *out has at least one address if well.
  bool ended(Status* status, std::vector<wire::Address>* out);

 private:
  void run() noexcept;

  std::string host_;
  uint16_t port_ = 0;
  Fd wake_;
  Mutex mu_;
  bool ended_ TCPX_GUARDED_BY(mu_) = false;
  Status status_ TCPX_GUARDED_BY(mu_);
  std::vector<wire::Address> found_ TCPX_GUARDED_BY(mu_);
};

}  // namespace tcpx
