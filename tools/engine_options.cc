#include "engine_options.h"

#include <unistd.h>

#include <algorithm>

#include <CLI/CLI.hpp>
#include "print.h"

#include "config/options.h"
#include "failure.h"

namespace tcpx::tool {
namespace {

std::string flag_name(std::string_view option) {
  std::string flag = "--" + std::string(option);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// A command line is there for all users of the machine to see (ps, /proc).
bool may_be_a_flag(std::string_view unit) {
  return unit != "secret";
}

// Taken only to say what to do instead; not in the help.
void refuse_flag(CLI::App& app, const std::string& option) {
  app.add_option_function<std::string>(
         flag_name(option),
         [option](const std::string&) {
           throw Failure(
               kExitUsage,
               strf("{0}: a key on the command line can be read by every user of this "
                    "machine (ps); put it into a file and give {1}, or set {2}",
                    flag_name(option), flag_name(option + "_file"), environment_name(option)));
         })
      ->group("");
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::vector<OptionText> option_texts() {
  std::vector<OptionText> out;
  for (auto& row : option_table())
    out.push_back({row.name, may_be_a_flag(row.unit) ? flag_name(row.name) : "",
                   environment_name(row.name), row.unit, row.default_text, row.range, row.aliases,
                   row.help});
  return out;
}

void EngineOptions::add_to(CLI::App& app, std::string_view except) {
  for (auto& row : option_texts()) {
    if (row.name == except) continue;
    if (!may_be_a_flag(row.unit)) {
      refuse_flag(app, row.name);
      continue;
    }
    std::string flags = row.flag;
    if (row.name == "interfaces") flags += ",--ifaces";  // what the older bench script calls it
    const std::string help = strf("{} [{}; default {}]", row.help, row.range,
                                  row.default_text.empty() ? "none" : row.default_text);
    app.add_option_function<std::string>(
           flags, [this, name = row.name](const std::string& value) { given_[name] = value; }, help)
        ->type_name(upper(row.unit))
        ->group("Engine options (also " + environment_name("") + "* in the environment)");
  }
}

std::vector<std::pair<std::string, std::string>> EngineOptions::given() const {
  return {given_.begin(), given_.end()};
}

std::vector<ResolvedOption> EngineOptions::resolve() const {
  Config config;
  if (Status s = load_config(given(), environ, &config); !s) throw Failure(kExitUsage, s.text());
  std::vector<ResolvedOption> out;
  for (auto& value : config.values) {
    std::string source = value.source;
    if (value.origin == Origin::kApi)
      source = derived_.contains(value.name) ? "this command" : "command line";
    out.push_back({value.name, value.value, source});
  }
  return out;
}

const ResolvedOption& find_option(const std::vector<ResolvedOption>& options,
                                  std::string_view name) {
  for (auto& option : options)
    if (option.name == name) return option;
  throw Failure(kExitUsage, strf("no option {}", name));
}

std::optional<std::pair<std::string, std::string>> bench_alias(std::string_view name) {
  const auto found = alias_value(name, environ);
  if (!found) return std::nullopt;
  return std::pair(found->variable, found->value);
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  return nearest(name, candidates);
}

}  // namespace tcpx::tool
