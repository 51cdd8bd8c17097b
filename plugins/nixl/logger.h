// Where log lines go. A plugin has no log of NIXL's to write to (it would need Abseil), so lines go
// to standard error, as NIXL's do.
#pragma once

#include <tcpx/tcpx.h>

#include <string>

namespace tcpx_nixl {

// A name as it may stand in a line: names come from peers.
std::string quoted(const std::string& name);

class Logger {
 public:
  explicit Logger(const std::string& agent) : agent_(quoted(agent)) {}

  // The engine filters its own lines; ours need its level. Before any other thread logs.
  void set_level(tcpx_log_level level) { level_ = level; }
  bool enabled(tcpx_log_level level) const { return level <= level_; }
  void log(tcpx_log_level level, const std::string& text) const {
    if (enabled(level)) print(level, text.c_str());
  }
  void from_engine(tcpx_log_level level, const char* line) const { print(level, line); }

 private:
  void print(tcpx_log_level level, const char* line) const;

  const std::string agent_;
  tcpx_log_level level_ = TCPX_LOG_INFO;
};

}  // namespace tcpx_nixl
