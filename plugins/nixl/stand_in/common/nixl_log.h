// In place of NIXL's header of this name when compiling against NIXL's own headers: the real one
// needs Abseil, and a plugin that uses it would need NIXL's copy of it when loaded. What NIXL's
// headers log goes nowhere.
#pragma once

#include <cassert>

namespace tcpx_nixl {
struct NoLog {
  template <class T>
  const NoLog& operator<<(const T&) const {
    return *this;
  }
};
}  // namespace tcpx_nixl

#define NIXL_TRACE ::tcpx_nixl::NoLog()
#define NIXL_DEBUG ::tcpx_nixl::NoLog()
#define NIXL_INFO ::tcpx_nixl::NoLog()
#define NIXL_WARN ::tcpx_nixl::NoLog()
#define NIXL_ERROR ::tcpx_nixl::NoLog()
#define NIXL_FATAL ::tcpx_nixl::NoLog()
#define NIXL_PERROR ::tcpx_nixl::NoLog()
#define NIXL_ASSERT(condition) assert(condition)
#define NIXL_ASSERT_ALWAYS(condition) assert(condition)
