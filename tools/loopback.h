// The other end of `bench --loopback` and `demo`: a bench server in a process of its own.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "api.h"
#include "base/fd.h"

namespace tcpx::tool {

using NameValueList = std::vector<std::pair<std::string, std::string>>;

class LoopbackServer {
 public:
  // Forks: call it before this process has threads.
  explicit LoopbackServer(const NameValueList& options);
  ~LoopbackServer();  // the server ends with its client; one that does not is killed
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  Bytes connection_info();  // waits for the server to be ready; throws Failure
  void check();             // throws Failure if the process has ended
  // After the client has failed: waits for the server's end. "; the server process was killed by
  // signal 9" if that is what happened, else empty.
  std::string cause_of_death();

 private:
  void reap(bool wait_long);

  pid_t pid_ = -1;
  Fd channel_;
  bool ended_ = false;
  bool killed_by_us_ = false;
  int status_ = 0;
};

}  // namespace tcpx::tool
