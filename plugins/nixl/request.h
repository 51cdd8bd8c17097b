// One transfer request: what prepXfer makes and post, check and release use. It owns all it needs;
// the metadata and the connection it was made from may be gone when it is used.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <tcpx/tcpx.hpp>

#include "connections.h"
#include "forked.h"
#include "logger.h"
#include "nixl_abi.h"

namespace tcpx_nixl {

class Request final : public nixlBackendReqH {
 public:
  Request(ConnectionPtr connection, tcpx::Transfer transfer, const Logger& log)
      : connection_(std::move(connection)), transfer_(std::move(transfer)), log_(log) {}
  // The peer was lost before the request was made: every post says so.
  Request(ConnectionPtr connection, tcpx_code lost, const Logger& log)
      : connection_(std::move(connection)), log_(log), state_(lost) {}
  // Ends what is in progress; local memory is not touched any more when this returns.
  ~Request() override;

  // TCPX_OK: started.
  tcpx_code post();
  tcpx_code post(std::string_view notification);
  bool posted() const { return posted_; }
  // TCPX_IN_PROGRESS or how it ended; the same answer again until the next post. `connections`
  // knows whether a peer whose memory is gone is still there.
  tcpx_code check(const Connections& connections);

  const Connection& connection() const { return *connection_; }

 private:
  tcpx_code post(const tcpx_post_args& args);
  tcpx_code poll();
  tcpx_code memory_gone(tcpx_code session);
  void ended(tcpx_code code);
  void report(tcpx_code code) const;

  const MadeHere made_here_;
  const ConnectionPtr connection_;
  tcpx::Transfer transfer_;  // none: the peer was lost
  const Logger& log_;
  bool posted_ = false;
  tcpx_code state_ = TCPX_OK;  // of the last post
  bool decided_ = true;        // no more to be learned about state_
  std::chrono::steady_clock::time_point gone_since_;
};

}  // namespace tcpx_nixl
