// Messages between agents. The sender's name travels with the message: the receiver may never have
// loaded the sender's metadata.
#pragma once

#include <tcpx/tcpx.h>

#include <string>

#include "guarded.h"
#include "logger.h"
#include "nixl_abi.h"

namespace tcpx_nixl {

// [4 bytes: length of the name, little-endian][name][message]
std::string encode_notification(const std::string& agent, const std::string& message);
bool decode_notification(const std::string& bytes, std::string* agent, std::string* message);

class Inbox {
 public:
  Inbox(tcpx_engine* engine, const Logger& log) : engine_(engine), log_(log) {}

  // From this agent to itself, without a transfer: no need for a socket.
  void add_own(const std::string& agent, const std::string& message);
  void take_all(notif_list_t* out);

 private:
  bool take_one_locked(std::string* bytes) TCPX_REQUIRES(mu_);

  tcpx_engine* const engine_;
  const Logger& log_;
  tcpx::Mutex mu_;
  notif_list_t own_ TCPX_GUARDED_BY(mu_);
};

}  // namespace tcpx_nixl
