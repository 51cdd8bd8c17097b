// Copies of user memory. Under ThreadSanitizer they are not instrumented, for the reason given in
// path/tcp/payload_io.h: what orders the application's own accesses goes through sockets.
#pragma once

#include <cstdint>
#include <cstring>

namespace tcpx {

#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread"), noinline)) inline void copy_payload(uint8_t* to,
                                                                          const uint8_t* from,
                                                                          uint64_t length) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(length) : : "memory");
#else
  for (uint64_t i = 0; i < length; ++i) to[i] = from[i];
#endif
}
#else
inline void copy_payload(uint8_t* to, const uint8_t* from, uint64_t length) {
  memcpy(to, from, length);
}
#endif

}  // namespace tcpx
