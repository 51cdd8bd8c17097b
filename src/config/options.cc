#include "config/options.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/log.h"
#include "config/aliases.h"
#include "config/table.h"

namespace tcpx {

using config::Environment;
using config::Row;

namespace {

constexpr std::string_view kPrefix = "TCPX_";
// Variables of the test plugin and of the test suites.
constexpr std::string_view kForeignPrefixes[] = {"TCPX_EMU_", "TCPX_TEST_"};
constexpr size_t kMaxShownName = 64;
constexpr uint64_t kLeastSocketBuffer = 32u << 10;

struct Source {
  Origin origin = Origin::kDefault;
  std::string source = "default";
};

Status bad(std::string text) {
  return bad_call(TCPX_BAD_CONFIG, std::move(text));
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const Row& row : config::rows()) names.emplace_back(row.option.name);
  return names;
}

std::vector<std::string> alias_names(const Row& row) {
  std::vector<std::string> names;
  for (std::string_view name : config::split(row.option.aliases, ',')) {
    if (!name.empty()) names.emplace_back(name);
  }
  return names;
}

// "TCPX_LANES: "x" is not a whole number, e.g. 16 (option lanes: 0..64)"
Status explain(const Row& row, const std::string& label, const Status& cause) {
  return bad(
      strf("{}: {} (option {}: {})", label, cause.text(), row.option.name, row.option.range));
}

Status check_explicit_names(const NameValues& values) {
  std::set<std::string_view> seen;
  for (const auto& [name, value] : values) {
    if (config::find_row(name) == nullptr) {
      return bad(strf("unknown option \"{}\"; did you mean \"{}\"? `tcpx config` lists all",
                      escaped(std::string_view(name).substr(0, kMaxShownName)),
                      nearest(name, option_names())));
    }
    if (!seen.insert(name).second) {
      return bad(strf("option \"{}\" is given twice; give it once", name));
    }
  }
  return {};
}

bool is_foreign(std::string_view variable) {
  if (!variable.starts_with(kPrefix)) return true;
  return std::any_of(std::begin(kForeignPrefixes), std::end(kForeignPrefixes),
                     [&](std::string_view prefix) { return variable.starts_with(prefix); });
}

// Every TCPX_* variable has to mean something to us, or the user believes in a setting that has no
// effect. Values are checked by their row even if something with precedence hides them.
Status check_environment(const Environment& env) {
  std::vector<std::string> known;
  std::set<std::string, std::less<>> aliases;
  for (const Row& row : config::rows()) {
    known.push_back(environment_name(row.option.name));
    for (std::string& alias : alias_names(row)) aliases.insert(std::move(alias));
  }
  for (const auto& [variable, value] : env.all()) {
    if (is_foreign(variable) || aliases.contains(variable)) continue;
    auto found = std::find(known.begin(), known.end(), variable);
    if (found == known.end()) {
      return bad(
          strf("unknown variable {} in the environment; did you mean {}? "
               "`tcpx config` lists all",
               escaped(variable.substr(0, kMaxShownName)), nearest(variable, known)));
    }
    const Row& row = config::rows()[static_cast<size_t>(found - known.begin())];
    EngineOptions scratch;
    if (Status s = set_field(row, value, &scratch); !s) return explain(row, *found, s);
  }
  return {};
}

Status set_from_aliases(const Row& row, const Environment& env, EngineOptions* options,
                        Source* source) {
  for (const std::string& variable : alias_names(row)) {
    auto value = env.find(variable);
    if (!value || value->empty()) continue;
    std::optional<config::Translated> translated;
    Status s = translate_alias(variable, *value, env, &translated);
    if (s && !translated) continue;
    if (s) s = set_field(row, translated->value, options);
    if (!s) return explain(row, variable, s);
    *source = {Origin::kAlias, translated->source};
    return {};
  }
  return {};
}

Status set_row(const Row& row, const NameValues& values, const Environment& env,
               EngineOptions* options, Source* source) {
  for (const auto& [name, value] : values) {
    if (name != row.option.name) continue;
    *source = {Origin::kApi, "api"};
    Status s = set_field(row, value, options);
    return s ? s : explain(row, "option " + name, s);
  }
  std::string variable = environment_name(row.option.name);
  if (auto value = env.find(variable)) {
    *source = {Origin::kEnvironment, variable};
    return set_field(row, *value, options);  // check_environment has accepted it
  }
  return set_from_aliases(row, env, options, source);
}

std::string default_name() {
  char host[64] = "";
  // A name that does not fit is cut without terminator; the pid has to fit behind it.
  if (gethostname(host, sizeof host - 1) != 0) return strf("pid:{}", getpid());
  std::string name(host);
  std::erase_if(name, [](char c) { return c <= 0x20 || c >= 0x7f; });
  return strf("{}:{}", name.substr(0, 48), getpid());
}

// Rules between rows: what is wrong and which row to change.
struct Rule {
  bool (*broken)(const EngineOptions&);
  std::string (*text)(const EngineOptions&);
};

bool allows(const EngineOptions& o, std::string_view path) {
  auto paths = config::split(o.allow_path, ',');
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

std::string row_text(const char* name, const EngineOptions& o) {
  return strf("{}={}", name, field_text(*config::find_row(name), o));
}

const Rule kRules[] = {
    {[](const EngineOptions& o) { return !o.auth_key.empty() && !o.auth_key_file.empty(); },
     [](const EngineOptions&) -> std::string {
       return "auth_key and auth_key_file are both set; give the key one way";
     }},
    {[](const EngineOptions& o) {
       return !o.auth && !(o.auth_key.empty() && o.auth_key_file.empty());
     },
     [](const EngineOptions& o) {
       return strf("auth=off with {} set: the key would not be used; remove one of them",
                   o.auth_key.empty() ? "auth_key_file" : "auth_key");
     }},
    {[](const EngineOptions& o) { return o.peer_timeout <= o.keepalive; },
     [](const EngineOptions& o) {
       return strf(
           "{} must be longer than {}, or idle peers are given up before they are "
           "asked; e.g. peer_timeout=15s keepalive=1s",
           row_text("peer_timeout", o), row_text("keepalive", o));
     }},
    {[](const EngineOptions& o) { return o.lane_timeout <= o.keepalive; },
     [](const EngineOptions& o) {
       return strf(
           "{} must be longer than {}, or idle lanes are given up before they are "
           "asked; e.g. lane_timeout=2s keepalive=1s",
           row_text("lane_timeout", o), row_text("keepalive", o));
     }},
    {[](const EngineOptions& o) {
       return o.socket_buffer != 0 && o.socket_buffer < kLeastSocketBuffer;
     },
     [](const EngineOptions& o) {
       return strf(
           "{} is too small: below 32K the kernel itself waits for its own timers, and plain TCP "
           "moves 0.2 MB/s where 32K gives 300; e.g. socket_buffer=64K",
           row_text("socket_buffer", o));
     }},
    {[](const EngineOptions& o) { return !o.require_path.empty() && !allows(o, o.require_path); },
     [](const EngineOptions& o) {
       return strf("{} is not among {}; add it to allow_path", row_text("require_path", o),
                   row_text("allow_path", o));
     }},
    {[](const EngineOptions& o) {
       return std::max(o.net_sockets, 1u) * std::max(o.net_threads, 1u) > kMaxPluginSockets;
     },
     [](const EngineOptions& o) {
       return strf(
           "{} times {} is more than the {} sockets a comm of the net plugin has; e.g. "
           "net_sockets=4 net_threads=1",
           row_text("net_sockets", o), row_text("net_threads", o), kMaxPluginSockets);
     }},
};

Status check_rules(const EngineOptions& options) {
  for (const Rule& rule : kRules) {
    if (rule.broken(options)) return bad(rule.text(options));
  }
  return {};
}

// Case and the dashes of command line flags are no edits.
std::string folded(std::string_view text) {
  constexpr size_t kEnough = 64;  // the table below is quadratic; names come from anywhere
  std::string out(text.substr(0, kEnough));
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '-') c = '_';
  }
  return out;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t change = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, change});
      bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

std::span<const OptionRow> option_table() {
  static const std::vector<OptionRow> table = [] {
    std::vector<OptionRow> out;
    for (const Row& row : config::rows()) out.push_back(row.option);
    return out;
  }();
  return table;
}

const OptionRow* find_option(std::string_view name) {
  const Row* row = config::find_row(name);
  return row == nullptr ? nullptr : &row->option;
}

std::string environment_name(std::string_view option) {
  std::string out(kPrefix);
  for (char c : option) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  std::string wanted = folded(name);
  const std::string* best = nullptr;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    size_t distance = edit_distance(wanted, folded(candidate));
    if (best == nullptr || distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::string() : *best;
}

std::optional<AliasValue> alias_value(std::string_view name, const char* const* environment) {
  constexpr std::pair<std::string_view, const char*> kBench[] = {{"size", "UCCL_TCPX_PERF_SIZE"},
                                                                 {"iters", "UCCL_TCPX_PERF_ITERS"}};
  for (const auto& [key, variable] : kBench) {
    if (key != name) continue;
    auto value = Environment(environment).find(variable);
    if (value && !value->empty()) return AliasValue{variable, std::string(*value)};
  }
  return std::nullopt;
}

std::string Config::to_text() const {
  std::string out;
  for (const OptionValue& value : values) {
    out += strf("{}={} ({})\n", value.name, value.value, value.source);
  }
  return out;
}

Status load_config(const NameValues& explicit_values, const char* const* environment, Config* out) {
  Environment env(environment);
  if (Status s = check_explicit_names(explicit_values); !s) return s;
  if (Status s = check_environment(env); !s) return s;
  Config config;
  std::vector<Source> sources;
  for (const Row& row : config::rows()) {
    Source source;
    if (Status s = set_row(row, explicit_values, env, &config.options, &source); !s) return s;
    sources.push_back(std::move(source));
  }
  if (Status s = check_rules(config.options); !s) return s;
  if (config.options.name.empty()) config.options.name = default_name();
  for (size_t i = 0; i < sources.size(); ++i) {
    const Row& row = config::rows()[i];
    config.values.push_back(
        {row.option.name, field_text(row, config.options), sources[i].origin, sources[i].source});
  }
  *out = std::move(config);
  return {};
}

}  // namespace tcpx
