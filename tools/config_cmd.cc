// `tcpx config`: every option, its value and where that comes from.
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include "print.h"

#include "api.h"
#include "commands.h"
#include "engine_options.h"
#include "failure.h"

namespace tcpx::tool {
namespace {

struct ConfigOptions {
  bool markdown = false;
  bool json = false;
  EngineOptions engine;
};

void print_text(const std::vector<ResolvedOption>& options) {
  size_t width = 0, value_width = 0;
  for (auto& option : options) {
    width = std::max(width, option.name.size());
    value_width = std::max(value_width, option.value.size());
  }
  for (auto& option : options)
    print(stdout, "{:<{}}  {:<{}}  {}\n", option.name, width, option.value, value_width,
          option.source);
}

void print_json(const std::vector<ResolvedOption>& options) {
  Json out = Json::array();
  const auto texts = option_texts();
  for (size_t i = 0; i < options.size(); ++i)
    out.push_back({{"name", options[i].name},
                   {"value", options[i].value},
                   {"origin", options[i].source},
                   {"variable", texts[i].variable},
                   {"flag", texts[i].flag},
                   {"unit", texts[i].unit},
                   {"default", texts[i].default_text},
                   {"range", texts[i].range},
                   {"aliases", texts[i].aliases},
                   {"help", texts[i].help}});
  print(stdout, "{}\n", Json{{"schema", 1}, {"options", out}}.dump(2));
}

// A cell of a table: its bars would end it.
std::string cell(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(const std::string& text) {
  return text.empty() ? "" : "`" + cell(text) + "`";
}

std::string code_list(const std::string& names) {
  std::string out;
  for (size_t start = 0; start < names.size();) {
    const size_t comma = std::min(names.find(',', start), names.size());
    out += (out.empty() ? "" : ", ") + code(names.substr(start, comma - start));
    start = comma + 1;
  }
  return out;
}

void print_markdown() {
  print(stdout,
        "# Configuration\n\n"
        "Written by `tcpx config --markdown` from the option table; do not edit.\n\n"
        "One row is one option. It is set by its name in the API and in NIXL parameters, by its\n"
        "variable in the environment, or by its flag on the command line. First wins: API or "
        "command\n"
        "line, `TCPX_*`, the aliases, the default. Sizes are powers of two (`512K`, `4M`), times "
        "have a\n"
        "unit (`250us`, `30s`). An unknown `TCPX_*` variable or a bad value is an error at start.\n"
        "`tcpx config` shows the values in effect and where each comes from.\n\n"
        "| name | variable | flag | unit | default | range | aliases | what it does |\n"
        "|---|---|---|---|---|---|---|---|\n");
  for (auto& row : option_texts())
    print(stdout, "| {} | {} | {} | {} | {} | {} | {} | {} |\n", code(row.name), code(row.variable),
          code(row.flag), row.unit, code(row.default_text), cell(row.range), code_list(row.aliases),
          cell(row.help));
}

}  // namespace

Command add_config(CLI::App& app) {
  auto* config = app.add_subcommand("config", "print every option with its value and origin");
  auto options = std::make_shared<ConfigOptions>();
  auto* markdown = config->add_flag("--markdown", options->markdown, "the table of docs/config.md");
  config->add_flag("--json", options->json, "one JSON document")->excludes(markdown);
  options->engine.add_to(*config);
  return {config, [options]() -> int {
            if (options->markdown) {
              print_markdown();
              return kExitOk;
            }
            const auto resolved = options->engine.resolve();
            options->json ? print_json(resolved) : print_text(resolved);
            return kExitOk;
          }};
}

}  // namespace tcpx::tool
