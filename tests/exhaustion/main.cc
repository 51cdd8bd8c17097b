// The suite's main: the same binary is also a peer and the process that a test does things to.
#include <gtest/gtest.h>

#include "../support/peer_program.h"
#include "child.h"

int main(int argc, char** argv) {
  if (int code = tcpx::test::peer_main(argc, argv); code >= 0) return code;
  if (int code = tcpx::test::child_main(argc, argv); code >= 0) return code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
