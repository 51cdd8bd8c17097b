// The other end of `bench --loopback` and `demo`: a bench server in a process of its own, or in
// this one (kernels of two processes take turns on a GPU, those of one do not).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api.h"
#include "base/fd.h"

namespace tcpx::tool {

using NameValueList = std::vector<std::pair<std::string, std::string>>;

class LoopbackServer {
 public:
  enum class Where { kOwnProcess, kThisProcess };
  // kOwnProcess forks: call it before this process has threads.
  LoopbackServer(const NameValueList& options, Where where);
  // The server ends with its client; one that does not is killed, and this process with it if it is
  // in it.
  ~LoopbackServer();
  LoopbackServer(const LoopbackServer&) = delete;
  LoopbackServer& operator=(const LoopbackServer&) = delete;

  Bytes connection_info();  // waits for the server to be ready; throws Failure
  void check();             // throws Failure if the process has ended
  // After the client has failed: waits for the server's end. "; the server process was killed by
  // signal 9" if that is what happened, else empty.
  std::string cause_of_death();

 private:
  void start_process(const NameValueList& options, int channel);
  void start_thread(const NameValueList& options, int channel);
  bool has_ended();
  void kill_it();
  void reap(bool wait_long);

  pid_t pid_ = -1;
  std::thread thread_;  // in place of a process
  std::atomic<bool> thread_ended_{false};
  Fd channel_;
  bool ended_ = false;
  bool killed_by_us_ = false;
  int status_ = 0;
};

}  // namespace tcpx::tool
