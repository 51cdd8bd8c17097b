#include "params.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>

namespace tcpx_nixl {

namespace {

constexpr size_t kMaxName = 63;  // of the option "name"

// NIXL has no deadlines, and applications post many large transfers at once, so the time a healthy
// one takes has no useful bound. A peer that died or stopped is found by peer_timeout long before.
constexpr const char* kDeadline = "10m";

std::vector<tcpx_option_info> option_table() {
  std::vector<tcpx_option_info> rows;
  tcpx_option_info row;
  while (tcpx_option_get(rows.size(), &row) == TCPX_OK) rows.push_back(row);
  return rows;
}

std::string default_of(const tcpx_option_info& row) {
  std::string name = row.name;
  if (name == "name") return "";  // the agent's
  if (name == "deadline") return kDeadline;
  return row.default_value;
}

bool is_set(const std::string& variable) {
  const char* value = getenv(variable.c_str());
  return value != nullptr && *value != 0;
}

bool set_by_environment(const tcpx_option_info& row) {
  std::string variable = "TCPX_";
  for (const char* c = row.name; *c != 0; ++c)
    variable += static_cast<char>(toupper(static_cast<unsigned char>(*c)));
  if (is_set(variable)) return true;
  std::string aliases = row.aliases;
  for (size_t start = 0; start < aliases.size();) {
    size_t comma = std::min(aliases.find(',', start), aliases.size());
    if (is_set(aliases.substr(start, comma - start))) return true;
    start = comma + 1;
  }
  return false;
}

std::string printable(const std::string& agent) {
  std::string name = agent.substr(0, kMaxName);
  for (char& c : name)
    if (c <= 0x20 || c >= 0x7f) c = '_';
  return name;
}

// Who turns NIXL's log up wants to see ours too.
std::optional<std::string> log_level_of_nixl() {
  const char* value = getenv("NIXL_LOG_LEVEL");
  if (value == nullptr) return std::nullopt;
  std::string level = value;
  for (char& c : level) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
  if (level == "fatal") return "error";
  if (level == "error" || level == "warn" || level == "info" || level == "debug" ||
      level == "trace")
    return level;
  return std::nullopt;
}

// What this backend uses where neither the user nor the environment says anything.
std::optional<std::string> own_default(const std::string& option, const std::string& agent) {
  if (option == "name" && !agent.empty()) return printable(agent);
  if (option == "deadline") return kDeadline;
  if (option == "log_level") return log_level_of_nixl();
  return std::nullopt;
}

}  // namespace

EngineSettings settings_for(const nixlBackendInitParams& params) {
  static const nixl_b_params_t none;
  const nixl_b_params_t& given = params.customParams == nullptr ? none : *params.customParams;
  EngineSettings out;
  std::vector<tcpx_option_info> rows = option_table();
  for (const tcpx_option_info& row : rows) {
    auto found = given.find(row.name);
    if (found != given.end() && !found->second.empty() && found->second != default_of(row))
      out.options.emplace_back(row.name, found->second);
    else if (!set_by_environment(row))
      if (auto value = own_default(row.name, params.localAgent))
        out.options.emplace_back(row.name, *value);
  }
  for (const auto& entry : given) {
    const std::string& name = entry.first;
    bool known = std::any_of(rows.begin(), rows.end(),
                             [&](const tcpx_option_info& row) { return row.name == name; });
    if (!known) out.unknown.push_back(name);
  }
  std::sort(out.unknown.begin(), out.unknown.end());
  return out;
}

nixl_b_params_t default_params() {
  nixl_b_params_t out;
  for (const tcpx_option_info& row : option_table()) out[row.name] = default_of(row);
  return out;
}

std::string effective_value(const std::string& config_text, const std::string& name) {
  std::string text = "\n" + config_text;
  size_t start = text.find("\n" + name + "=");
  if (start == std::string::npos) return "";
  start += name.size() + 2;
  return text.substr(start, text.find(" (", start) - start);
}

}  // namespace tcpx_nixl
