// tcpx_test_peer: the line-driven engine of support/peer_program.h as a program of its own, for
// tests that start their peers in other namespaces. Takes an optional --peer.
#include <unistd.h>

#include "../../support/peer_program.h"

int main(int argc, char** argv) {
  if (int code = tcpx::test::peer_main(argc, argv); code >= 0) return code;
  return tcpx::test::run_peer_program(STDIN_FILENO, STDOUT_FILENO);
}
