// Threads that cannot be had: a binary with failing_threads.cc has its own pthread_create, which
// libstdc++ and libraries that are loaded find, too.
#pragma once

#include <cstdint>

namespace tcpx::test {

// The n-th thread from now on cannot be created (n from 1), nor the `more` after it.
void fail_threads(int64_t n, int64_t more = 0);
// Whether one was refused.
bool stop_failing_threads();

}  // namespace tcpx::test
