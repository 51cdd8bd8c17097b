// Memory that cannot be had, in this binary: failing.cc replaces operator new, for the library and
// libstdc++ too.
#pragma once

#include <cstdint>

namespace tcpx::test {

// This thread belongs to the test: it is not one of those that fail_on_library_threads() means.
void exempt_this_thread();

// The n-th allocation from now on throws (n from 1), on any thread that is not exempt.
void fail_on_library_threads(int64_t n);
// The same for allocations of the calling thread only.
void fail_on_this_thread(int64_t n);
// From now on OpenSSL's allocations count too. Before it has made any.
bool fail_openssl_too();
// Ends either; whether it has failed one.
bool stop_failing();

}  // namespace tcpx::test
