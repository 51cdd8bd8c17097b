#include "signals.h"

#include <csignal>

#include "failure.h"

namespace tcpx::tool {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

}  // namespace

void handle_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
  return g_interrupted != 0;
}

void check_interrupted() {
  if (interrupted()) throw Failure(kExitInterrupted, "interrupted");
}

}  // namespace tcpx::tool
