// The only file of the library that compiles fmt's implementation.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include "base/text.h"

namespace tcpx {

std::string vstrf(std::string_view format, fmt::format_args args) {
  return fmt::vformat(fmt::string_view(format.data(), format.size()), args);
}

}  // namespace tcpx
