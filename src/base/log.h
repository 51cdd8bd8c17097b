// The engine's log: one callback, a level, complete lines. Nothing is printed without a callback.
// Log once, where the cause is known; callers add context to the Status instead.
#pragma once

#include <string>
#include <string_view>

#include <tcpx/tcpx.h>

#include "base/text.h"

namespace tcpx {

class Log {
 public:
  Log() = default;
  Log(tcpx_log_fn fn, void* user, tcpx_log_level level) : fn_(fn), user_(user), level_(level) {}

  bool enabled(tcpx_log_level level) const { return fn_ != nullptr && level <= level_; }
  void write(tcpx_log_level level, const std::string& line) const {
    if (enabled(level)) fn_(user_, level, line.c_str());
  }
  // Whatever the level is set to.
  void write_always(tcpx_log_level level, const std::string& line) const {
    if (fn_ != nullptr) fn_(user_, level, line.c_str());
  }
  template <class... Args>
  void error(fmt::format_string<Args...> format, const Args&... args) const {
    log(TCPX_LOG_ERROR, format, args...);
  }
  template <class... Args>
  void warn(fmt::format_string<Args...> format, const Args&... args) const {
    log(TCPX_LOG_WARN, format, args...);
  }
  template <class... Args>
  void info(fmt::format_string<Args...> format, const Args&... args) const {
    log(TCPX_LOG_INFO, format, args...);
  }
  template <class... Args>
  void debug(fmt::format_string<Args...> format, const Args&... args) const {
    log(TCPX_LOG_DEBUG, format, args...);
  }
  template <class... Args>
  void trace(fmt::format_string<Args...> format, const Args&... args) const {
    log(TCPX_LOG_TRACE, format, args...);
  }

 private:
  template <class... Args>
  void log(tcpx_log_level level, fmt::format_string<Args...> format, const Args&... args) const {
    if (!enabled(level)) return;
    try {
      write(level, strf(format, args...));
    } catch (...) {  // no memory for it: the line is left out
    }
  }

  tcpx_log_fn fn_ = nullptr;
  void* user_ = nullptr;
  tcpx_log_level level_ = TCPX_LOG_INFO;
};

// Printable form of bytes that came from a peer: control characters and quotes are escaped.
std::string escaped(std::string_view text);

}  // namespace tcpx
