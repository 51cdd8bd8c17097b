#include "base/log.h"

namespace tcpx {

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\\':
      case '"':
      case '\'': out += {'\\', c}; break;
      default:
        // Bytes above 0x7e too: a terminal may take them as control sequences or hide text.
        if (byte < 0x20 || byte > 0x7e) {
          out += strf("\\x{:02x}", byte);
        } else {
          out += c;
        }
    }
  }
  return out;
}

}  // namespace tcpx
