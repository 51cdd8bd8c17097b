// The option table as command line flags: every row is --name-with-dashes, except secrets, which
// are refused there. Nothing about an option is written down here a second time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace tcpx::tool {

struct ResolvedOption {
  std::string name;
  std::string value;   // a secret is "(set)"
  std::string source;  // "command line", "this command", "TCPX_LANES", "default", ...
};

struct OptionText {  // a row of the table
  std::string name, flag /* empty: none */, variable, unit, default_text, range, aliases, help;
};
std::vector<OptionText> option_texts();

class EngineOptions {
 public:
  // Adds the flags of all rows but `except`. `this` has to outlive the parsing.
  void add_to(CLI::App& app, std::string_view except = {});

  bool given(const std::string& name) const { return given_.contains(name); }
  // A value that follows from another flag; resolve() says so.
  void set(const std::string& name, const std::string& value) {
    given_[name] = value;
    derived_.insert(name);
  }
  std::vector<std::pair<std::string, std::string>> given() const;
  // What an engine made with the given values and this environment runs with. Throws Failure.
  std::vector<ResolvedOption> resolve() const;

 private:
  std::map<std::string, std::string> given_;
  std::set<std::string> derived_;
};

const ResolvedOption& find_option(const std::vector<ResolvedOption>& options,
                                  std::string_view name);

// A setting of the bench that comes from an older name in the environment: (variable, value).
std::optional<std::pair<std::string, std::string>> bench_alias(std::string_view name);
// For "did you mean": the one of `candidates` that looks most like `name`.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tcpx::tool
