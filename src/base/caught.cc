#include "base/caught.h"

#include <exception>
#include <new>

namespace tcpx {

namespace {
// Short enough to live inside a std::string.
constexpr char kNoMemory[] = "out of memory", kUnknown[] = "an exception";
static_assert(sizeof kNoMemory <= 16 && sizeof kUnknown <= 16);
}  // namespace

Status caught(tcpx_blast blast) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status(TCPX_NO_MEMORY, blast, kNoMemory);
  } catch (const std::exception& error) {
    try {
      return Status(TCPX_INTERNAL, blast, error.what());
    } catch (...) {
      return Status(TCPX_INTERNAL, blast, kUnknown);
    }
  } catch (...) {
    return Status(TCPX_INTERNAL, blast, kUnknown);
  }
}

}  // namespace tcpx
