#include "logger.h"

#include <cstdio>

namespace tcpx_nixl {

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (unsigned char c : name)
    out += static_cast<char>(c < 0x20 || c == 0x7f || c == '"' ? '?' : c);
  return out + "\"";
}

void Logger::print(tcpx_log_level level, const char* line) const {
  static constexpr char kLetters[] = "EWIDT";
  char letter = level >= TCPX_LOG_ERROR && level <= TCPX_LOG_TRACE ? kLetters[level] : '?';
  // One call per line: lines of several threads do not mix.
  fprintf(stderr, "TCPX %c %s: %s\n", letter, agent_.c_str(), line);
}

}  // namespace tcpx_nixl
