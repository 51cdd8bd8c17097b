#include "path/net/plugin_log.h"

#include <cstdarg>
#include <cstdio>
#include <map>

#include "base/caught.h"
#include "base/mutex.h"

namespace tcpx::net {
namespace {

struct Sinks {
  Mutex mu;
  std::map<int, Log> logs TCPX_GUARDED_BY(mu);
  int next TCPX_GUARDED_BY(mu) = 1;
  struct Warning {
    std::string text;
    Nanos at = 0;
  };
  Warning newest TCPX_GUARDED_BY(mu), before TCPX_GUARDED_BY(mu);
};

// Never destroyed: a plugin's threads may log while the process exits.
Sinks& sinks() {
  static Sinks* const all = new Sinks;
  return *all;
}

tcpx_log_level level_of(int level) {
  switch (level) {
    case nccl::kLogWarn:
    case nccl::kLogAbort: return TCPX_LOG_WARN;
    case nccl::kLogVersion:
    case nccl::kLogInfo: return TCPX_LOG_DEBUG;
    default: return TCPX_LOG_TRACE;
  }
}

// Warnings of a plugin are told at every log level: they are rare, and often the only cause there
// is to be had.
void tell(int level, const char* text, const char* where, int line) {
  Sinks& all = sinks();
  MutexLock lock(all.mu);
  bool warning = level == nccl::kLogWarn;
  if (warning) {
    if (all.newest.text != text) all.before = std::move(all.newest);
    all.newest = {text, now_ns()};
  }
  for (auto& [id, log] : all.logs)
    if (warning || log.enabled(level_of(level)))
      log.write_always(level_of(level),
                       strf("net plugin: {} ({}:{})", text, where ? where : "?", line));
}

// Format and arguments of real plugins do not always match, and %s may be null: vsnprintf is all
// that is done with them. Nothing is thrown into a plugin.
void log_line(int level, unsigned long, const char* where, int line, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  quietly([&] { tell(level, text, where, line); });
}

}  // namespace

nccl::Logger plugin_logger() {
  return &log_line;
}

PluginLogTap::PluginLogTap(const Log& log) {
  Sinks& all = sinks();
  MutexLock lock(all.mu);
  id_ = all.next++;
  all.logs.emplace(id_, log);
}

PluginLogTap::~PluginLogTap() {
  Sinks& all = sinks();
  MutexLock lock(all.mu);
  all.logs.erase(id_);
}

std::string last_plugin_warning(Nanos since) {
  Sinks& all = sinks();
  MutexLock lock(all.mu);
  if (all.newest.text.empty() || all.newest.at < since) return {};
  if (all.before.text.empty() || all.before.at < since) return all.newest.text;
  return strf("{} (before it: {})", all.newest.text, all.before.text);
}

}  // namespace tcpx::net
