// How the command ends: exit codes (documented in --help) and the exception that carries one.
#pragma once

#include <stdexcept>
#include <string>

namespace tcpx::tool {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,        // a transfer failed, or the other side did
  kExitUsage = 2,         // bad command line or bad configuration
  kExitEnvironment = 3,   // this machine cannot run what was asked
  kExitVerification = 4,  // data arrived that is not what was sent
  kExitInterrupted = 130  // SIGINT or SIGTERM, by the shell's convention
};

class Failure : public std::runtime_error {
 public:
  Failure(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

// The connection to the other side has ended. What to say about it depends on who asks.
class PeerGone : public Failure {
 public:
  explicit PeerGone(const std::string& text) : Failure(kExitFailed, text) {}
};

// The server is there but occupied.
class ServerBusy : public Failure {
 public:
  explicit ServerBusy(const std::string& text) : Failure(kExitFailed, text) {}
};

// errno as a Failure: "listen on 1.2.3.4:5: address in use".
[[noreturn]] void fail_errno(ExitCode code, const std::string& what, int error);

}  // namespace tcpx::tool
