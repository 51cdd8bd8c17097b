// The suite's main: the same binary is also the peer when TCPX_TEST_PEER names none.
#include <gtest/gtest.h>

#include "../support/peer_program.h"

int main(int argc, char** argv) {
  if (int code = tcpx::test::peer_main(argc, argv); code >= 0) return code;
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
